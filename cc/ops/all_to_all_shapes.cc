#include "cc/ops/all_to_all_shapes.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/public/version.h"

namespace tf_tpu_ext {
namespace {

// If one dimension is both split and concatenated, TensorFlow's shape function checks the product
// of its size and split_count, and so accepts any size.
absl::Status CheckDivisible(const tensorflow::NodeDef& node,
                            const tensorflow::PartialTensorShape& input) {
  int64_t split_dimension, split_count;
  TF_RETURN_IF_ERROR(tensorflow::GetNodeAttr(node, "split_dimension", &split_dimension));
  TF_RETURN_IF_ERROR(tensorflow::GetNodeAttr(node, "split_count", &split_count));
  const int64_t size = input.dim_size(split_dimension);
  if (size % split_count == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("AllToAll: dimension ", split_dimension, " has ",
                                                 size, " elements, not divisible by split_count ",
                                                 split_count, "."));
}

}  // namespace

absl::Status CheckAllToAllShapes(const tensorflow::NodeDef& node,
                                 const std::vector<tensorflow::PartialTensorShape>& shapes) {
  const tensorflow::OpRegistrationData* op = nullptr;
  TF_RETURN_IF_ERROR(tensorflow::OpRegistry::Global()->LookUp(node.op(), &op));
  tensorflow::shape_inference::InferenceContext context(
      TF_GRAPH_DEF_VERSION, tensorflow::AttrSlice(node), op->op_def, shapes,
      /*input_tensors=*/{}, /*input_tensors_as_shapes=*/{}, /*input_handle_shapes_and_types=*/{});
  TF_RETURN_IF_ERROR(context.construction_status());
  absl::Status status = context.Run(op->shape_inference_fn);
  if (status.ok()) status = CheckDivisible(node, shapes[0]);
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(),
                   " AllToAll cuts split_dimension into one piece for each replica of a group: "
                   "make split_count the number of replicas in a group and a divisor of that "
                   "dimension's size, and name dimensions that the input has."));
}

}  // namespace tf_tpu_ext
