// TensorFlow's updates of variables under names of our own: the bridge takes the originals apart
// into a read, a sum and a write, between which another replica's update would be lost.
#include "cc/ops/host_update_ops.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_tpu_ext {
namespace {

constexpr char kPrefix[] = "TpuExt>";
constexpr const char* kUpdates[] = {
    "AssignAddVariableOp", "AssignSubVariableOp", "ResourceScatterAdd", "ResourceScatterDiv",
    "ResourceScatterMax",  "ResourceScatterMin",  "ResourceScatterMul", "ResourceScatterSub"};

#define REGISTER_UPDATE(name)                             \
  REGISTER_OP("TpuExt>" name)                             \
      .Input("resource: resource")                        \
      .Input("value: dtype")                              \
      .Attr("dtype: type")                                \
      .SetIsStateful()                                    \
      .SetShapeFn(tensorflow::shape_inference::NoOutputs) \
      .Doc("What " name " does, in a cluster of outside compilation.")

#define REGISTER_SCATTER(name)                            \
  REGISTER_OP("TpuExt>" name)                             \
      .Input("resource: resource")                        \
      .Input("indices: Tindices")                         \
      .Input("updates: dtype")                            \
      .Attr("dtype: type")                                \
      .Attr("Tindices: {int32, int64}")                   \
      .SetIsStateful()                                    \
      .SetShapeFn(tensorflow::shape_inference::NoOutputs) \
      .Doc("What " name " does, in a cluster of outside compilation.")

REGISTER_UPDATE("AssignAddVariableOp");
REGISTER_UPDATE("AssignSubVariableOp");
REGISTER_SCATTER("ResourceScatterAdd");
REGISTER_SCATTER("ResourceScatterSub");
REGISTER_SCATTER("ResourceScatterMul");
REGISTER_SCATTER("ResourceScatterDiv");
REGISTER_SCATTER("ResourceScatterMin");
REGISTER_SCATTER("ResourceScatterMax");

}  // namespace

bool IsHostUpdate(const std::string& op) {
  return std::find(std::begin(kUpdates), std::end(kUpdates), op) != std::end(kUpdates);
}

std::string HostUpdateTwin(const std::string& op) { return absl::StrCat(kPrefix, op); }

std::string OriginalOfHostUpdate(const std::string& twin) {
  absl::string_view original = twin;
  if (!absl::ConsumePrefix(&original, kPrefix)) return "";
  const std::string name(original);
  return IsHostUpdate(name) ? name : "";
}
}  // namespace tf_tpu_ext
