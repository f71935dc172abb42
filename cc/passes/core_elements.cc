#include "cc/passes/core_elements.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "cc/ops/op_names.h"
#include "cc/passes/computation_marks.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Edge;
using tensorflow::FunctionDef;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeDef;

bool IsMove(const NodeDef& node) {
  return node.op() == "Identity" && node.attr().count(kForCore) > 0;
}

absl::Status BypassIn(Graph* graph) {
  std::vector<Node*> moves;
  for (Node* node : graph->op_nodes()) {
    if (IsMove(node->def())) moves.push_back(node);
  }
  for (Node* move : moves) {
    const Edge* moved = nullptr;
    TF_RETURN_IF_ERROR(move->input_edge(0, &moved));
    const std::vector<const Edge*> uses(move->out_edges().begin(), move->out_edges().end());
    for (const Edge* use : uses) {
      if (use->IsControlEdge() || !IsReplicatedInput(use->dst()->type_string())) continue;
      TF_RETURN_IF_ERROR(
          graph->UpdateEdge(moved->src(), moved->src_output(), use->dst(), use->dst_input()));
    }
    if (absl::c_all_of(move->out_edges(), [](const Edge* use) { return use->dst()->IsSink(); })) {
      graph->RemoveNode(move);
    }
  }
  return absl::OkStatus();
}

// The node that a function's input, `node:output:index` or `^node`, comes from.
std::string Source(absl::string_view input) {
  absl::ConsumePrefix(&input, "^");
  return std::string(input.substr(0, input.find(':')));
}

void BypassIn(FunctionDef* function) {
  std::map<std::string, std::string> moved;
  for (const NodeDef& node : function->node_def()) {
    // A damaged function may lack the input.
    if (!IsMove(node) || node.input_size() == 0) continue;
    moved[absl::StrCat(node.name(), ":output:0")] = node.input(0);
  }
  std::set<std::string> used;
  for (NodeDef& node : *function->mutable_node_def()) {
    for (std::string& input : *node.mutable_input()) {
      const auto move = moved.find(input);
      if (move != moved.end() && IsReplicatedInput(node.op())) input = move->second;
      used.insert(Source(input));
    }
  }
  for (const auto& [name, result] : function->ret()) used.insert(Source(result));
  for (const auto& [name, node] : function->control_ret()) used.insert(node);
  auto& nodes = *function->mutable_node_def();
  nodes.erase(std::remove_if(nodes.begin(), nodes.end(),
                             [&used](const NodeDef& node) {
                               return IsMove(node) && used.count(node.name()) == 0;
                             }),
              nodes.end());
}

}  // namespace

absl::Status TakeElementsFromHost(Graph* graph, tensorflow::FunctionLibraryDefinition* library) {
  TF_RETURN_IF_ERROR(BypassIn(graph));
  for (const std::string& name : library->ListFunctionNames()) {
    const auto record = library->FindRecord(name);
    if (record == nullptr || absl::c_none_of(record->fdef().node_def(), IsMove)) continue;
    FunctionDef function = record->fdef();
    BypassIn(&function);
    TF_RETURN_IF_ERROR(library->ReplaceFunction(name, function, record->stack_traces()));
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
