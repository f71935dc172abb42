#include "cc/passes/order_computations.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/ops/op_names.h"
#include "cc/passes/computation_marks.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeDef;

bool IsLoop(const std::string& op) { return op == "Enter" || op == "RefEnter"; }

// The nodes of a graph or a function, by number.
class Nodes {
 public:
  void Add(const NodeDef& definition) {
    definitions_.push_back(&definition);
    ordered_.emplace_back().computation = MarkedComputation(definition);
  }
  void AddInput(int node, int input, bool is_control) {
    (is_control ? ordered_[node].control_inputs : ordered_[node].data_inputs).push_back(input);
  }

  bool HoldsLoops() const {
    for (size_t i = 0; i < ordered_.size(); ++i) {
      if (ordered_[i].computation.empty() && IsLoop(definitions_[i]->op())) return true;
    }
    return false;
  }

  std::vector<Gate> Gates() {
    AddReplicatedValues();
    return GatesOfComputations(ordered_);
  }

 private:
  // The ops that carry values into and out of a computation have no mark, but the bridge moves them
  // along with it.
  void AddReplicatedValues() {
    std::vector<std::set<std::string>> readers(ordered_.size());
    for (const OrderedNode& node : ordered_) {
      for (int input : node.data_inputs) readers[input].insert(node.computation);
    }
    // The inputs of a partitioned or replicated input may be such ops too, so this starts with the
    // last.
    for (size_t i = ordered_.size(); i-- > 0;) {
      if (!IsReplicatedInput(definitions_[i]->op()) || readers[i].size() != 1) continue;
      ordered_[i].computation = *readers[i].begin();
      for (int input : ordered_[i].data_inputs) {
        // This reader belonged to no computation until now.
        readers[input].erase("");
        readers[input].insert(ordered_[i].computation);
      }
    }
    for (size_t i = 0; i < ordered_.size(); ++i) {
      if (!IsReplicatedOutput(definitions_[i]->op()) || ordered_[i].data_inputs.size() != 1)
        continue;
      ordered_[i].computation = ordered_[ordered_[i].data_inputs[0]].computation;
    }
  }

  std::vector<const NodeDef*> definitions_;
  std::vector<OrderedNode> ordered_;
};

// How many computations the nodes belong to, counting only up to two.
template <typename NodeDefs>
int CountComputations(const NodeDefs& nodes) {
  std::string first;
  for (const NodeDef* node : nodes) {
    const auto mark = node->attr().find(kTpuReplicate);
    if (mark == node->attr().end() || mark->second.s() == first) continue;
    if (!first.empty()) return 2;
    first = mark->second.s();
  }
  return first.empty() ? 0 : 1;
}

std::string NameOfGate(const std::string& computation) {
  return absl::StrCat(computation, "/gate");
}

// Does nothing if the graph has fewer than `fewest` computations.
absl::Status OrderGraph(int fewest, Graph* graph) {
  std::vector<Node*> ordered;
  std::vector<const NodeDef*> definitions;
  for (Node* node : graph->op_nodes()) {
    ordered.push_back(node);
    definitions.push_back(&node->def());
  }
  if (CountComputations(definitions) < fewest) return absl::OkStatus();
  Nodes nodes;
  absl::flat_hash_map<const Node*, int> numbers;
  for (Node* node : ordered) {
    numbers[node] = static_cast<int>(numbers.size());
    nodes.Add(node->def());
  }
  for (const auto& [node, number] : numbers) {
    for (const tensorflow::Edge* edge : node->in_edges()) {
      const auto source = numbers.find(edge->src());
      // The edge back in a loop is no order.
      if (source == numbers.end() || edge->src()->IsNextIteration()) continue;
      nodes.AddInput(number, source->second, edge->IsControlEdge());
    }
  }
  if (nodes.HoldsLoops()) return absl::OkStatus();
  for (const Gate& gate : nodes.Gates()) {
    NodeDef definition;
    definition.set_op("NoOp");
    definition.set_name(graph->NewName(NameOfGate(gate.computation)));
    TF_ASSIGN_OR_RETURN(Node* const added, graph->AddNode(std::move(definition)));
    for (int node : gate.after) graph->AddControlEdge(ordered[node], added);
    for (int node : gate.before) graph->AddControlEdge(added, ordered[node]);
  }
  return absl::OkStatus();
}

// Returns whether the function has changed.
bool OrderFunction(FunctionDef* function) {
  std::vector<NodeDef*> definitions;
  Nodes nodes;
  absl::flat_hash_map<std::string, int> numbers;
  for (NodeDef& node : *function->mutable_node_def()) {
    numbers[node.name()] = static_cast<int>(definitions.size());
    definitions.push_back(&node);
    nodes.Add(node);
  }
  for (size_t i = 0; i < definitions.size(); ++i) {
    for (const std::string& input : definitions[i]->input()) {
      const bool is_control = absl::StartsWith(input, "^");
      const std::string name = is_control ? input.substr(1) : input.substr(0, input.find(':'));
      // Other inputs are arguments.
      if (const auto found = numbers.find(name); found != numbers.end()) {
        nodes.AddInput(static_cast<int>(i), found->second, is_control);
      }
    }
  }
  if (nodes.HoldsLoops()) return false;
  const std::vector<Gate> gates = nodes.Gates();
  // New nodes may move the old ones, so the names come first.
  std::vector<std::string> names;
  for (const NodeDef* node : definitions) names.push_back(node->name());
  for (const Gate& gate : gates) {
    std::string name = NameOfGate(gate.computation);
    while (numbers.contains(name)) name += '_';
    for (int node : gate.before) function->mutable_node_def(node)->add_input("^" + name);
    NodeDef* definition = function->add_node_def();
    definition->set_op("NoOp");
    definition->set_name(name);
    for (int node : gate.after) definition->add_input("^" + names[node]);
  }
  return !gates.empty();
}

// The order of computations, and what each of them must follow.
class Order {
 public:
  explicit Order(absl::Span<const OrderedNode> nodes) : nodes_(nodes) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].computation.empty()) continue;
      const auto [known, fresh] =
          numbers_.try_emplace(nodes[i].computation, static_cast<int>(members_.size()));
      if (fresh) members_.emplace_back();
      members_[known->second].push_back(static_cast<int>(i));
    }
    units_.resize(nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i) {
      units_[i] = nodes[i].computation.empty() ? static_cast<int>(members_.size() + i)
                                               : numbers_[nodes[i].computation];
    }
    Sort();
  }

  std::vector<Gate> Gates() const {
    std::vector<Gate> gates;
    for (size_t unit = 0; unit < members_.size(); ++unit) {
      if (!sorted_[unit]) continue;
      Gate gate;
      gate.computation = nodes_[members_[unit][0]].computation;
      // Each once, in a fixed order.
      std::set<int> after;
      for (int node : members_[unit]) {
        for (int input : nodes_[node].control_inputs) {
          if (units_[input] != static_cast<int>(unit)) after.insert(input);
        }
      }
      for (int earlier : follows_[unit]) {
        const std::vector<int> last = Last(earlier);
        after.insert(last.begin(), last.end());
      }
      if (after.empty()) continue;
      gate.after.assign(after.begin(), after.end());
      gate.before = First(static_cast<int>(unit));
      gates.push_back(std::move(gate));
    }
    return gates;
  }

 private:
  template <typename Body>
  void ForEachInput(int node, const Body& body) const {
    for (int input : nodes_[node].data_inputs) body(input);
    for (int input : nodes_[node].control_inputs) body(input);
  }

  // A unit is a whole computation, or a node outside computations. Finds for each unit the
  // computations that come right before it, with only nodes outside computations in between. Takes
  // the units in topological order, so that what a unit follows is complete when it is passed on to
  // its users; units in a cycle, and those after a cycle, are never reached.
  void Sort() {
    const size_t size = members_.size() + nodes_.size();
    std::vector<std::set<int>> inputs(size);
    std::vector<std::vector<int>> users(size);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      ForEachInput(static_cast<int>(i), [&](int input) {
        if (units_[input] == units_[i]) return;
        if (inputs[units_[i]].insert(units_[input]).second) {
          users[units_[input]].push_back(units_[i]);
        }
      });
    }
    follows_.resize(size);
    sorted_.assign(size, false);
    std::vector<size_t> open(size);
    std::vector<int> ready;
    for (size_t unit = 0; unit < size; ++unit) {
      open[unit] = inputs[unit].size();
      if (open[unit] == 0) ready.push_back(static_cast<int>(unit));
    }
    while (!ready.empty()) {
      const int unit = ready.back();
      ready.pop_back();
      sorted_[unit] = true;
      for (int user : users[unit]) {
        if (unit < static_cast<int>(members_.size())) {
          follows_[user].insert(unit);
        } else {
          follows_[user].insert(follows_[unit].begin(), follows_[unit].end());
        }
        if (--open[user] == 0) ready.push_back(user);
      }
    }
  }

  // The nodes of a computation that follow no other node of it.
  std::vector<int> First(int unit) const {
    std::vector<int> first;
    for (int node : members_[unit]) {
      bool follows = false;
      ForEachInput(node, [&](int input) { follows = follows || units_[input] == unit; });
      if (!follows) first.push_back(node);
    }
    return first;
  }

  // The nodes of a computation that no other node of it follows.
  std::vector<int> Last(int unit) const {
    absl::flat_hash_set<int> followed;
    for (int node : members_[unit]) {
      ForEachInput(node, [&](int input) { followed.insert(input); });
    }
    std::vector<int> last;
    for (int node : members_[unit]) {
      if (!followed.contains(node)) last.push_back(node);
    }
    return last;
  }

  const absl::Span<const OrderedNode> nodes_;
  absl::flat_hash_map<std::string, int> numbers_;
  std::vector<std::vector<int>> members_;  // by computation
  std::vector<int> units_;                 // by node
  std::vector<bool> sorted_;               // by unit; false for those in a cycle
  std::vector<std::set<int>> follows_;     // by unit
};

}  // namespace

std::vector<Gate> GatesOfComputations(absl::Span<const OrderedNode> nodes) {
  return Order(nodes).Gates();
}

absl::Status OrderComputations(bool of_session, Graph* graph, FunctionLibraryDefinition* library) {
  TF_RETURN_IF_ERROR(OrderGraph(/*fewest=*/of_session ? 1 : 2, graph));
  for (const std::string& name : library->ListFunctionNames()) {
    const auto record = library->FindRecord(name);
    if (record == nullptr) continue;
    std::vector<const NodeDef*> nodes;
    for (const NodeDef& node : record->fdef().node_def()) nodes.push_back(&node);
    if (CountComputations(nodes) < 2) continue;
    FunctionDef function = record->fdef();
    if (!OrderFunction(&function)) continue;
    TF_RETURN_IF_ERROR(library->ReplaceFunction(name, function, record->stack_traces()));
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
