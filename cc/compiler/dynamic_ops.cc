#include "cc/compiler/dynamic_ops.h"

#include <algorithm>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "cc/compiler/dynamic_kernel.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::NodeDef;
using tensorflow::OpRegistrationData;

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

[[maybe_unused]] const bool registered = [] {
  for (const std::string& op : ReplacedOps()) {
    const OpRegistrationData* stock = nullptr;
    if (!tensorflow::OpRegistry::Global()->LookUp(op, &stock).ok()) continue;
    tensorflow::OpRegistry::Global()->Register([op, stock](OpRegistrationData* data) {
      data->op_def = stock->op_def;
      data->op_def.set_name(absl::StrCat(kDynamicPrefix, op));
      data->op_def.set_summary(absl::StrCat(op, " that reads no padding of dynamic dimensions."));
      data->op_def.clear_deprecation();
      data->shape_inference_fn = stock->shape_inference_fn;
      return absl::OkStatus();
    });
  }
  return true;
}();

}  // namespace

absl::Status ReplaceOpsOfDynamicSize(const tensorflow::tpu::TPUCompileMetadataProto& metadata,
                                     FunctionLibraryDefinition* library) {
  if (!MayHaveDynamicSizes(metadata, *library)) return absl::OkStatus();
  for (const std::string& name : library->ListFunctionNames()) {
    FunctionDef function = *library->Find(name);
    bool changed = false;
    for (NodeDef& node : *function.mutable_node_def()) {
      if (!ReplacedOps().contains(node.op())) continue;
      node.set_op(absl::StrCat(kDynamicPrefix, node.op()));
      changed = true;
    }
    if (!changed) continue;
    if (absl::Status status = library->ReplaceFunction(name, function); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
