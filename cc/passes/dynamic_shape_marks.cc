#include "cc/passes/dynamic_shape_marks.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeDef;

constexpr char kMarkOp[] = "TPUAnnotateTensorsWithDynamicShape";
constexpr char kMarkOutput[] = "tpu_tensors";
constexpr char kIdentityOp[] = "IdentityN";
constexpr char kIdentityOutput[] = "output";

absl::Status ReplaceNode(Node* mark, Graph* graph) {
  NodeDef definition = mark->def();
  definition.set_op(kIdentityOp);
  absl::Status status;
  Node* const identity = graph->AddNode(definition, &status);
  TF_RETURN_IF_ERROR(status);
  identity->set_assigned_device_name(mark->assigned_device_name());
  for (const tensorflow::Edge* edge : mark->in_edges()) {
    graph->AddEdge(edge->src(), edge->src_output(), identity, edge->dst_input());
  }
  const std::vector<const tensorflow::Edge*> uses(mark->out_edges().begin(),
                                                  mark->out_edges().end());
  for (const tensorflow::Edge* edge : uses) {
    Node* const user = edge->dst();
    const int output = edge->src_output(), input = edge->dst_input();
    graph->RemoveEdge(edge);
    graph->AddEdge(identity, output, user, input);
  }
  graph->RemoveNode(mark);
  return absl::OkStatus();
}

// A function refers to an output that it uses as `node:output:index`.
void RenameUse(const FunctionDef& function, std::string* use) {
  const std::vector<std::string> parts = absl::StrSplit(*use, ':');
  if (parts.size() != 3 || parts[1] != kMarkOutput) return;
  for (const NodeDef& node : function.node_def()) {
    if (node.name() == parts[0] && node.op() == kMarkOp) {
      *use = absl::StrCat(parts[0], ":", kIdentityOutput, ":", parts[2]);
    }
  }
}

FunctionDef WithoutMarks(const FunctionDef& marked) {
  FunctionDef function = marked;
  for (NodeDef& node : *function.mutable_node_def()) {
    for (std::string& input : *node.mutable_input()) RenameUse(marked, &input);
    if (node.op() == kMarkOp) node.set_op(kIdentityOp);
  }
  for (auto& [name, result] : *function.mutable_ret()) RenameUse(marked, &result);
  return function;
}

}  // namespace

absl::Status DropDynamicShapeMarks(Graph* graph, tensorflow::FunctionLibraryDefinition* library) {
  std::vector<Node*> marks;
  for (Node* node : graph->op_nodes()) {
    if (node->type_string() == kMarkOp) marks.push_back(node);
  }
  for (Node* mark : marks) TF_RETURN_IF_ERROR(ReplaceNode(mark, graph));
  for (const std::string& name : library->ListFunctionNames()) {
    const auto record = library->FindRecord(name);
    if (record == nullptr) continue;
    bool found = false;
    for (const NodeDef& node : record->fdef().node_def()) found = found || node.op() == kMarkOp;
    if (!found) continue;
    TF_RETURN_IF_ERROR(
        library->ReplaceFunction(name, WithoutMarks(record->fdef()), record->stack_traces()));
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
