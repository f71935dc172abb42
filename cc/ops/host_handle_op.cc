#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace tf_tpu_ext {

REGISTER_OP("TpuExt>HostHandle")
    .Input("handle: resource")
    .Output("on_host: resource")
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Lets ops of the host use a resource of a core, whose memory is the host's.

handle: A variable's, or another resource's, of a core of this machine.
on_host: A handle of the same resource that the kernels of the host take. It keeps the resource.
)doc");

}  // namespace tf_tpu_ext
