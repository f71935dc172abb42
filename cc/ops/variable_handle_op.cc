#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor_shape.pb.h"

namespace tf_tpu_ext {

REGISTER_OP("TpuExt>VariableHandle")
    .Input("debug_name: string")
    .Output("resource: resource")
    .Attr("dtype: type")
    .Attr("shape: shape")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      tensorflow::shape_inference::ShapeHandle shape;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 0, &shape));
      context->set_output(0, context->Scalar());
      tensorflow::DataType dtype;
      TF_RETURN_IF_ERROR(context->GetAttr("dtype", &dtype));
      tensorflow::PartialTensorShape of_variable;
      TF_RETURN_IF_ERROR(context->GetAttr("shape", &of_variable));
      TF_RETURN_IF_ERROR(context->MakeShapeFromPartialTensorShape(of_variable, &shape));
      context->set_output_handle_shapes_and_types(
          0, std::vector<tensorflow::shape_inference::ShapeAndType>{{shape, dtype}});
      return absl::OkStatus();
    })
    .Doc(R"doc(
Creates a variable, which lives as long as its handle.

Does what VarHandleOp does with an anonymous name. Eager execution prepares an op anew for each value
of its attributes, so that variables whose names are inputs are created faster.

debug_name: The name of the variable for those who debug, a scalar.
resource: Its handle.
)doc");

}  // namespace tf_tpu_ext
