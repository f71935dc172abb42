#include "cc/passes/computation_parts.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cc/ops/reachable_nodes.h"
#include "cc/passes/computation_marks.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/types.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Edge;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeDef;

// What the bridge itself writes for kTpuReplicate.
constexpr char kReplicationInfo[] = "_replication_info";

// Whether the node contains computations, or belongs to one, in a way that can't be divided here.
bool IsBridgedAsAWhole(const NodeDef& node) {
  return node.attr().count(kReplicationInfo) > 0 || node.op() == "TPUPartitionedCall";
}

bool BelongsToComputation(const NodeDef& node) {
  return !MarkedComputation(node).empty() || IsBridgedAsAWhole(node);
}

// Computations by number, some of them joined.
class Joined {
 public:
  int Number(const std::string& computation) {
    const auto [found, is_new] = numbers_.try_emplace(computation, Size());
    if (is_new) leaders_.push_back(found->second);
    return found->second;
  }

  int Size() const { return static_cast<int>(leaders_.size()); }

  int Leader(int number) const {
    while (leaders_[number] != number) number = leaders_[number];
    return number;
  }

  void Join(int a, int b) {
    a = Leader(a);
    b = Leader(b);
    leaders_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::map<std::string, int> numbers_;
  std::vector<int> leaders_;
};

class Division {
 public:
  Division(const Graph& graph, const FunctionLibraryDefinition& library)
      : graph_(graph), library_(library) {}

  std::vector<ComputationPart> Parts() {
    if (!AssignMarked() || !AssignUnmarked() || HostCallsComputations()) return {};
    // Joins each computation with those that it depends on, then collects the nodes by leader.
    for (int number = 0; number < joined_.Size(); ++number) JoinAncestors(number);
    std::map<int, ComputationPart> parts;
    for (Node* node : graph_.op_nodes()) {
      const int owner = OwnerOf(node);
      if (owner >= 0) parts[joined_.Leader(owner)].computations.push_back(node);
    }
    std::vector<ComputationPart> result;
    for (auto& [leader, part] : parts) {
      part.ancestors = AncestorsOf(part.computations);
      if (absl::c_any_of(part.ancestors, IsOfLoop) || absl::c_any_of(part.computations, HasRefs)) {
        return {};
      }
      result.push_back(std::move(part));
    }
    return result;
  }

 private:
  static bool IsOfLoop(const Node* node) {
    return node->IsEnter() || node->IsExit() || node->IsNextIteration();
  }

  static bool HasRefs(const Node* node) {
    return absl::c_any_of(node->output_types(), tensorflow::IsRefType);
  }

  int OwnerOf(const Node* node) const {
    const auto found = owners_.find(node);
    return found == owners_.end() ? -1 : found->second;
  }

  bool AssignMarked() {
    for (const Node* node : graph_.op_nodes()) {
      if (IsBridgedAsAWhole(node->def())) return false;
      if (const std::string mark = MarkedComputation(node->def()); !mark.empty()) {
        owners_[node] = joined_.Number(mark);
      }
    }
    return true;
  }

  // In a chain of such ops, each pass assigns one more.
  bool AssignUnmarked() {
    std::vector<const Node*> left;
    for (const Node* node : graph_.op_nodes()) {
      const std::string& op = node->type_string();
      if (OwnerOf(node) < 0 && (IsReplicatedInput(op) || IsReplicatedOutput(op))) {
        left.push_back(node);
      }
    }
    while (!left.empty()) {
      const size_t before = left.size();
      left.erase(std::remove_if(left.begin(), left.end(),
                                [&](const Node* node) { return AssignByNeighbors(node); }),
                 left.end());
      if (left.size() == before) return false;
    }
    return true;
  }

  // Assigns the node if all that it leads to, or comes from, belongs to one computation.
  bool AssignByNeighbors(const Node* node) {
    std::set<int> owners;
    const bool leads_in = IsReplicatedInput(node->type_string());
    for (const Edge* edge : leads_in ? node->out_edges() : node->in_edges()) {
      if (edge->IsControlEdge()) continue;
      owners.insert(OwnerOf(leads_in ? edge->dst() : edge->src()));
    }
    if (owners.size() != 1 || *owners.begin() < 0) return false;
    owners_[node] = *owners.begin();
    return true;
  }

  // Branches and loops of a computation are marked too.
  bool HostCallsComputations() const {
    return absl::c_any_of(graph_.op_nodes(), [&](const Node* node) {
      return OwnerOf(node) < 0 && AnyNodeCalledBy(node->def(), library_, BelongsToComputation);
    });
  }

  void JoinAncestors(int number) {
    std::vector<Node*> own;
    for (Node* node : graph_.op_nodes()) {
      if (OwnerOf(node) == number) own.push_back(node);
    }
    for (const Node* ancestor : AncestorsOf(own)) {
      if (const int owner = OwnerOf(ancestor); owner >= 0) joined_.Join(owner, number);
    }
  }

  // In the order of the graph, which is kept when the graph grows.
  static std::vector<Node*> AncestorsOf(const std::vector<Node*>& nodes) {
    absl::flat_hash_set<const Node*> seen(nodes.begin(), nodes.end());
    std::vector<Node*> found;
    std::vector<Node*> todo = nodes;
    while (!todo.empty()) {
      const Node* node = todo.back();
      todo.pop_back();
      for (const Edge* edge : node->in_edges()) {
        if (!edge->src()->IsOp() || !seen.insert(edge->src()).second) continue;
        found.push_back(edge->src());
        todo.push_back(edge->src());
      }
    }
    absl::c_sort(found, [](const Node* a, const Node* b) { return a->id() < b->id(); });
    return found;
  }

  const Graph& graph_;
  const FunctionLibraryDefinition& library_;
  Joined joined_;
  absl::flat_hash_map<const Node*, int> owners_;
};

}  // namespace

std::vector<ComputationPart> DivideIntoParts(const Graph& graph,
                                             const FunctionLibraryDefinition& library) {
  return Division(graph, library).Parts();
}

}  // namespace tf_tpu_ext
