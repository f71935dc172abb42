#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_tpu_ext {
namespace {

absl::Status ShapesFromAttribute(tensorflow::shape_inference::InferenceContext* context) {
  std::vector<tensorflow::PartialTensorShape> shapes;
  TF_RETURN_IF_ERROR(context->GetAttr("shapes", &shapes));
  for (int i = 0; i < context->num_outputs(); ++i) {
    tensorflow::shape_inference::ShapeHandle shape = context->UnknownShape();
    if (i < static_cast<int>(shapes.size())) {
      TF_RETURN_IF_ERROR(context->MakeShapeFromPartialTensorShape(shapes[i], &shape));
    }
    context->set_output(i, shape);
  }
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("TpuExt>HostCall")
    .Input("inputs: Tinputs")
    .Output("outputs: Toutputs")
    .Attr("Tinputs: list(type) >= 0")
    .Attr("Toutputs: list(type) >= 0")
    .Attr("shapes: list(shape) >= 0")
    .Attr("function: string")
    .Attr("library: string")
    .Attr("source: string = ''")
    .Attr("cluster: string = ''")
    .SetIsStateful()
    .SetShapeFn(ShapesFromAttribute)
    .Doc(R"doc(
Calls a function of TensorFlow on the host from within a compiled TPU program.

Stands for a cluster of outside compilation that needs nothing of the host but its arguments. The
program goes on at once if the function has no results, else when it has returned.

inputs: The function's arguments. Strings, resources and variants cannot cross.
outputs: What it returns.
shapes: Static shapes of the outputs.
function: The name of the function.
library: A serialized FunctionDefLibrary with the function and all that it calls.
source: The Python line that made the cluster, if known.
cluster: The cluster's name in its computation.
)doc");

REGISTER_OP("TpuExt>HostBarrier")
    .SetIsStateful()
    .Doc("Does nothing: marks the end of what the host does in a loop's or branch's body.");

REGISTER_OP("TpuExt>HostCompute")
    .Input("inputs: Tinputs")
    .Output("outputs: Toutputs")
    .Attr("Tinputs: list(type) >= 0")
    .Attr("Toutputs: list(type) >= 0")
    .Attr("shapes: list(shape) >= 0")
    .Attr("send_key: string")
    .Attr("recv_key: string")
    .Attr("manual_sharding: bool = false")
    .Attr("counted_as: string = ''")
    .Attr("counts_call: bool = true")
    .SetIsStateful()
    .SetShapeFn(ShapesFromAttribute)
    .Doc(R"doc(
Runs a part of a compiled TPU program on the host and waits for its results.

The inputs go out on one channel and the outputs come in on another; the host graph has a
_XlaRecvAtHost and a _XlaSendFromHost op for the same keys. Exists only in programs that are being
compiled.

inputs: What the host gets. Strings, resources and variants cannot cross.
outputs: What the host sends back.
shapes: Static shapes of the outputs.
send_key: Channel of the inputs; empty if there are none.
recv_key: Channel of the outputs; empty if there are none.
manual_sharding: Whether, in a replica of several cores, each core calls the host for itself.
counted_as: Under which name the transfers are counted; that of the op if empty.
counts_call: Whether it is a call of its own. The bridge may make several of one cluster.
)doc");

}  // namespace tf_tpu_ext
