#include "cc/passes/host_updates.h"

#include <vector>

#include "cc/ops/host_update_ops.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Edge;
using tensorflow::Graph;
using tensorflow::Node;

// An update has no outputs but control edges.
absl::StatusOr<Node*> Replace(Node* node, Graph* graph) {
  tensorflow::NodeDef definition = node->def();
  definition.set_op(HostUpdateTwin(node->type_string()));
  const std::vector<const Edge*> inputs(node->in_edges().begin(), node->in_edges().end());
  const std::vector<const Edge*> outputs(node->out_edges().begin(), node->out_edges().end());
  absl::Status status;
  Node* replacement = graph->AddNode(definition, &status);
  if (!status.ok()) return status;
  replacement->set_assigned_device_name(node->assigned_device_name());
  replacement->SetStackTrace(node->GetStackTrace());
  for (const Edge* edge : inputs) {
    graph->AddEdge(edge->src(), edge->src_output(), replacement, edge->dst_input());
  }
  for (const Edge* edge : outputs) {
    graph->AddEdge(replacement, edge->src_output(), edge->dst(), edge->dst_input());
  }
  graph->RemoveNode(node);
  return replacement;
}

}  // namespace

absl::Status KeepUpdatesWhole(HostCluster* cluster, Graph* graph) {
  for (Node*& node : cluster->nodes) {
    if (!IsHostUpdate(node->type_string())) continue;
    absl::StatusOr<Node*> replacement = Replace(node, graph);
    if (!replacement.ok()) return replacement.status();
    cluster->members.erase(node);
    cluster->members.insert(*replacement);
    node = *replacement;
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
