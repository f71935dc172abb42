#include "cc/passes/compile_marks.h"

#include <string>

#include "cc/ops/op_names.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AttrValue;
using tensorflow::FunctionDef;
using tensorflow::Node;
using tensorflow::NodeDef;

// Calls in outside compilation are not compiled, but the bridge checks their marks all the same.
bool Contradicts(const AttrValue* computation, const AttrValue* must_compile) {
  return computation != nullptr && must_compile != nullptr && !must_compile->b();
}

const AttrValue* Find(const NodeDef& node, const char* name) {
  const auto found = node.attr().find(name);
  return found == node.attr().end() ? nullptr : &found->second;
}

bool Contradicts(const NodeDef& node) {
  return Contradicts(Find(node, kTpuReplicate), Find(node, kMustCompile));
}

}  // namespace

absl::Status DropCompileMarks(tensorflow::Graph* graph,
                              tensorflow::FunctionLibraryDefinition* library) {
  for (Node* node : graph->op_nodes()) {
    if (Contradicts(node->attrs().Find(kTpuReplicate), node->attrs().Find(kMustCompile))) {
      node->ClearAttr(kMustCompile);
    }
  }
  for (const std::string& name : library->ListFunctionNames()) {
    const auto record = library->FindRecord(name);
    if (record == nullptr) continue;
    bool found = false;
    for (const NodeDef& node : record->fdef().node_def()) found = found || Contradicts(node);
    if (!found) continue;
    FunctionDef function = record->fdef();
    for (NodeDef& node : *function.mutable_node_def()) {
      if (Contradicts(node)) node.mutable_attr()->erase(kMustCompile);
    }
    TF_RETURN_IF_ERROR(library->ReplaceFunction(name, function, record->stack_traces()));
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
