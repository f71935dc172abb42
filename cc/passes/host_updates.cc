#include "cc/passes/host_updates.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/ops/host_update_ops.h"
#include "tensorflow/core/framework/attr_value.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AttrValue;
using tensorflow::Edge;
using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::NameAttrList;
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

// Functions with twins in the place of their updates, and of those in all that they call.
class TwinFunctions {
 public:
  explicit TwinFunctions(FunctionLibraryDefinition* library) : library_(library) {}

  // Lets a node's attributes name such functions; returns whether that changed any.
  absl::StatusOr<bool> Use(google::protobuf::Map<std::string, AttrValue>* attributes) {
    bool changed = false;
    for (auto& [name, value] : *attributes) {
      if (value.has_func()) {
        absl::StatusOr<bool> renamed = Rename(value.mutable_func());
        if (!renamed.ok()) return renamed;
        changed = changed || *renamed;
      }
      if (!value.has_list()) continue;
      for (NameAttrList& function : *value.mutable_list()->mutable_func()) {
        absl::StatusOr<bool> renamed = Rename(&function);
        if (!renamed.ok()) return renamed;
        changed = changed || *renamed;
      }
    }
    return changed;
  }

 private:
  absl::StatusOr<bool> Rename(NameAttrList* function) {
    absl::StatusOr<std::string> twin = TwinOf(function->name());
    if (!twin.ok()) return twin.status();
    const bool changed = *twin != function->name();
    function->set_name(*std::move(twin));
    return changed;
  }

  // The name of the function's twin; its own if it has no updates.
  absl::StatusOr<std::string> TwinOf(const std::string& name) {
    // A function that calls itself is left as it is.
    const auto [known, fresh] = twins_.emplace(name, name);
    if (!fresh) return known->second;
    const auto record = library_->FindRecord(name);
    if (record == nullptr) return name;
    FunctionDef function = record->fdef();
    bool changed = false;
    for (tensorflow::NodeDef& node : *function.mutable_node_def()) {
      if (IsHostUpdate(node.op())) {
        node.set_op(HostUpdateTwin(node.op()));
        changed = true;
        continue;
      }
      absl::StatusOr<bool> used = Use(node.mutable_attr());
      if (!used.ok()) return used.status();
      changed = changed || *used;
    }
    if (!changed) return name;
    const std::string twin = library_->UniqueFunctionName(absl::StrCat(name, "_whole_updates_"));
    function.mutable_signature()->set_name(twin);
    absl::Status status = library_->AddFunctionDef(function, record->stack_traces());
    if (!status.ok()) return status;
    twins_[name] = twin;
    return twin;
  }

  FunctionLibraryDefinition* const library_;
  std::map<std::string, std::string> twins_;
};

}  // namespace

absl::Status KeepUpdatesWhole(HostCluster* cluster, Graph* graph,
                              FunctionLibraryDefinition* library) {
  TwinFunctions twins(library);
  for (Node*& node : cluster->nodes) {
    if (!IsHostUpdate(node->type_string())) {
      auto attributes = node->def().attr();
      absl::StatusOr<bool> used = twins.Use(&attributes);
      if (!used.ok()) return used.status();
      if (!*used) continue;
      for (const auto& [name, value] : attributes) {
        node->ClearAttr(name);
        node->AddAttr(name, value);
      }
      continue;
    }
    absl::StatusOr<Node*> replacement = Replace(node, graph);
    if (!replacement.ok()) return replacement.status();
    cluster->members.erase(node);
    cluster->members.insert(*replacement);
    node = *replacement;
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
