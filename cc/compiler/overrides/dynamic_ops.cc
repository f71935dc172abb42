#include "cc/compiler/overrides/dynamic_ops.h"

#include <algorithm>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "cc/compiler/overrides/dynamic_kernel.h"
#include "cc/compiler/overrides/override_ops.h"
#include "tensorflow/core/framework/node_def.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionLibraryDefinition;
using tensorflow::NodeDef;

const absl::flat_hash_set<std::string>& ReplacedOps() {
  static const auto* const ops = new absl::flat_hash_set<std::string>(
      {"AvgPool",        "AvgPool3D",           "AvgPoolGrad",      "AvgPool3DGrad", "Cumsum",
       "Cumprod",        "CumulativeLogsumexp", "MatrixDiag",       "MatrixDiagV2",  "MatrixDiagV3",
       "MatrixDiagPart", "MatrixDiagPartV2",    "MatrixDiagPartV3", "MirrorPad",     "OnesLike",
       "Roll",           "StridedSlice",        "StridedSliceGrad", "Unique",        "UniqueV2",
       "Where"});
  return *ops;
}

bool MakesDynamicSizes(const NodeDef& node) {
  static const auto* const ops = new absl::flat_hash_set<std::string>(
      {"XlaSetDynamicDimensionSize", "Where", "Unique", "UniqueV2", "DynamicPartition"});
  return ops->contains(node.op());
}

bool MayHaveDynamicSizes(const tensorflow::tpu::TPUCompileMetadataProto& metadata,
                         const FunctionLibraryDefinition& library) {
  for (const auto& argument : metadata.args()) {
    const auto& dynamic = argument.is_bounded_dynamic_dim();
    if (std::find(dynamic.begin(), dynamic.end(), true) != dynamic.end()) return true;
  }
  for (const std::string& name : library.ListFunctionNames()) {
    const auto& nodes = library.Find(name)->node_def();
    if (std::any_of(nodes.begin(), nodes.end(), MakesDynamicSizes)) return true;
  }
  return false;
}

[[maybe_unused]] const bool kDynamicOpsRegistered = [] {
  RegisterOverrideOps(kDynamicPrefix, ReplacedOps(),
                      "that reads no padding of dynamic dimensions.");
  return true;
}();

}  // namespace

absl::Status ReplaceOpsOfDynamicSize(const tensorflow::tpu::TPUCompileMetadataProto& metadata,
                                     FunctionLibraryDefinition* library) {
  if (!MayHaveDynamicSizes(metadata, *library)) return absl::OkStatus();
  return ReplaceByOverrides(kDynamicPrefix, ReplacedOps(), library);
}

}  // namespace tf_tpu_ext
