#include "cc/passes/host_updates.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/ops/host_update_ops.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AttrValue;
using tensorflow::Edge;
using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::NameAttrList;
using tensorflow::Node;

// Replaces the node with the override. An update has no outputs except control edges.
absl::StatusOr<Node*> Replace(Node* node, Graph* graph) {
  tensorflow::NodeDef definition = node->def();
  definition.set_op(HostUpdateOverride(node->type_string()));
  const std::vector<const Edge*> inputs(node->in_edges().begin(), node->in_edges().end());
  const std::vector<const Edge*> outputs(node->out_edges().begin(), node->out_edges().end());
  TF_ASSIGN_OR_RETURN(Node* const replacement, graph->AddNode(std::move(definition)));
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

// Copies of functions, with overrides in place of the updates in them and in all that they call.
// The originals stay: others, outside clusters, may call them.
class OverridingFunctions {
 public:
  explicit OverridingFunctions(FunctionLibraryDefinition* library) : library_(library) {}

  // Makes a node's attributes name such functions; returns whether any attribute changed.
  absl::StatusOr<bool> Use(google::protobuf::Map<std::string, AttrValue>* attributes) {
    bool changed = false;
    for (auto& [name, value] : *attributes) {
      if (value.has_func()) {
        TF_ASSIGN_OR_RETURN(const bool renamed, Rename(value.mutable_func()));
        changed = changed || renamed;
      }
      if (!value.has_list()) continue;
      for (NameAttrList& function : *value.mutable_list()->mutable_func()) {
        TF_ASSIGN_OR_RETURN(const bool renamed, Rename(&function));
        changed = changed || renamed;
      }
    }
    return changed;
  }

 private:
  absl::StatusOr<bool> Rename(NameAttrList* function) {
    TF_ASSIGN_OR_RETURN(std::string name, WithOverrides(function->name()));
    const bool changed = name != function->name();
    function->set_name(std::move(name));
    return changed;
  }

  // The name of the function's copy with overrides, or its own name if it has no updates.
  absl::StatusOr<std::string> WithOverrides(const std::string& name) {
    // A function that calls itself is left unchanged.
    const auto [known, fresh] = copies_.emplace(name, name);
    if (!fresh) return known->second;
    const auto record = library_->FindRecord(name);
    if (record == nullptr) return name;
    FunctionDef function = record->fdef();
    bool changed = false;
    for (tensorflow::NodeDef& node : *function.mutable_node_def()) {
      if (IsHostUpdate(node.op())) {
        node.set_op(HostUpdateOverride(node.op()));
        changed = true;
        continue;
      }
      TF_ASSIGN_OR_RETURN(const bool used, Use(node.mutable_attr()));
      changed = changed || used;
    }
    if (!changed) return name;
    std::string copy = library_->UniqueFunctionName(absl::StrCat(name, "_whole_updates_"));
    function.mutable_signature()->set_name(copy);
    TF_RETURN_IF_ERROR(library_->AddFunctionDef(function, record->stack_traces()));
    copies_[name] = copy;
    return copy;
  }

  FunctionLibraryDefinition* const library_;
  // By the original's name.
  std::map<std::string, std::string> copies_;
};

}  // namespace

absl::Status KeepUpdatesWhole(HostCluster* cluster, Graph* graph,
                              FunctionLibraryDefinition* library) {
  OverridingFunctions functions(library);
  for (Node*& node : cluster->nodes) {
    if (!IsHostUpdate(node->type_string())) {
      auto attributes = node->def().attr();
      TF_ASSIGN_OR_RETURN(const bool used, functions.Use(&attributes));
      if (!used) continue;
      for (const auto& [name, value] : attributes) {
        node->ClearAttr(name);
        node->AddAttr(name, value);
      }
      continue;
    }
    TF_ASSIGN_OR_RETURN(Node* const replacement, Replace(node, graph));
    cluster->members.erase(node);
    cluster->members.insert(replacement);
    node = replacement;
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
