#include "cc/compiler/overrides/override_ops.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {

using tensorflow::NodeDef;
using tensorflow::OpRegistrationData;

void RegisterOverrideOps(absl::string_view prefix, const absl::flat_hash_set<std::string>& ops,
                         absl::string_view summary) {
  for (const std::string& op : ops) {
    const OpRegistrationData* stock = nullptr;
    if (!tensorflow::OpRegistry::Global()->LookUp(op, &stock).ok()) continue;
    const std::string name = absl::StrCat(prefix, op);
    const std::string text = absl::StrCat(op, " ", summary);
    tensorflow::OpRegistry::Global()->Register([name, text, stock](OpRegistrationData* data) {
      data->op_def = stock->op_def;
      data->op_def.set_name(name);
      data->op_def.set_summary(text);
      data->op_def.clear_deprecation();
      data->shape_inference_fn = stock->shape_inference_fn;
      return absl::OkStatus();
    });
  }
}

absl::Status ReplaceByOverrides(absl::string_view prefix,
                                const absl::flat_hash_set<std::string>& ops,
                                tensorflow::FunctionLibraryDefinition* library) {
  const auto is_replaced = [&ops](const NodeDef& node) { return ops.contains(node.op()); };
  for (const std::string& name : library->ListFunctionNames()) {
    const auto record = library->FindRecord(name);
    if (record == nullptr) continue;
    const auto& nodes = record->fdef().node_def();
    if (std::none_of(nodes.begin(), nodes.end(), is_replaced)) continue;
    tensorflow::FunctionDef function = record->fdef();
    for (NodeDef& node : *function.mutable_node_def()) {
      if (is_replaced(node)) node.set_op(absl::StrCat(prefix, node.op()));
    }
    TF_RETURN_IF_ERROR(library->ReplaceFunction(name, function, record->stack_traces()));
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
