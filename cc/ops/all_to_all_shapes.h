// The shape rules of AllToAll, for its kernels.
#ifndef TF_TPU_EXT_CC_OPS_ALL_TO_ALL_SHAPES_H_
#define TF_TPU_EXT_CC_OPS_ALL_TO_ALL_SHAPES_H_

#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_tpu_ext {

// Runs TensorFlow's own shape function for AllToAll on `node` with the fully known `shapes` of its
// two inputs, and returns its error with advice on what to do. Also returns InvalidArgument if
// split_count does not divide the dimension to split.
//
// Eager execution never runs shape functions, and a shape that is unknown while a graph is built
// becomes known only when the graph is compiled. This check gives the user the same errors there.
absl::Status CheckAllToAllShapes(const tensorflow::NodeDef& node,
                                 const std::vector<tensorflow::PartialTensorShape>& shapes);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_OPS_ALL_TO_ALL_SHAPES_H_
