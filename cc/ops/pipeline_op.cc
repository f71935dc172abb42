#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace tf_tpu_ext {

REGISTER_OP("TpuExt>PipelineDataset")
    .Input("pipeline: int64")
    .Output("handle: variant")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
The elements of a pipeline that runs in processes of another environment.

pipeline: Its number in this process.
handle: The dataset.
)doc");

}  // namespace tf_tpu_ext
