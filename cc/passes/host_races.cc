#include "cc/passes/host_races.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cc/base/user_lines.h"
#include "cc/ops/op_names.h"
#include "cc/ops/reachable_nodes.h"
#include "cc/passes/switch_branches.h"
#include "cc/program/traced_options.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/node_def_util.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeDef;

enum class Use { kNone, kRead, kAdd, kWrite };

Use UseBy(absl::string_view op) {
  if (op == "ReadVariableOp" || op == "ResourceGather" || op == "ResourceGatherNd") {
    return Use::kRead;
  }
  if (op == "AssignAddVariableOp" || op == "AssignSubVariableOp" || op == "ResourceScatterAdd" ||
      op == "ResourceScatterSub" || op == "ResourceScatterNdAdd" || op == "ResourceScatterNdSub") {
    return Use::kAdd;
  }
  if (op == "AssignVariableOp" || op == "ResourceStridedSliceAssign" ||
      absl::StartsWith(op, "ResourceScatter") || absl::StartsWith(op, "ResourceApply") ||
      absl::StartsWith(op, "ResourceSparseApply")) {
    return Use::kWrite;
  }
  return Use::kNone;
}

bool IsCollective(absl::string_view op) {
  return op == "CrossReplicaSum" || op == "AllToAll" || op == "CollectivePermute" ||
         absl::StartsWith(op, "Collective") || absl::StartsWith(op, "Xla");
}

bool IsConditional(absl::string_view op) {
  return op == "If" || op == "StatelessIf" || op == "Case" || op == "StatelessCase";
}

std::string Text(const NodeDef& node, const char* name) {
  const auto found = node.attr().find(name);
  return found == node.attr().end() ? "" : found->second.s();
}

bool IsLoop(absl::string_view op) { return op == "While" || op == "StatelessWhile"; }

// Where the ops of a body belong in the program.
struct Place {
  // Empty if they are the host's own.
  std::string computation;
  // The cluster that the whole body belongs to, if it does, and where it is.
  std::string cluster;
  std::string cluster_name;
  std::string cluster_function;
  // The path of calls that lead to the body, and the last function called.
  std::string path;
  std::string function;
  // The loops around it, outermost first.
  std::vector<std::string> loops;
  // The branches that have to be taken before it runs.
  Branches branches;
};

// Whether the node's result is its first input.
bool PassesOn(const NodeDef& node) {
  int inputs = 0;
  bool alike = true;
  for (const std::string& input : node.input()) {
    if (input.front() == '^') continue;
    ++inputs;
    alike = alike && input == node.input(0);
  }
  // The value that all replicas get, or that only some branch gets.
  return inputs == 1 || (inputs > 1 && node.op() == "TPUReplicatedInput" && alike) ||
         node.op() == "Switch";
}

struct Access {
  HostAccess place;
  Use use = Use::kNone;
  std::string cluster;
  std::vector<std::string> loops;
  bool in_branch = false;
};

struct Computation {
  int replicas = 1;
  bool check = false;
  // The loops around each collective.
  std::set<std::vector<std::string>> collectives;
  // By the node that makes the variable's handle.
  std::map<std::string, std::vector<Access>> accesses;
};

// The nodes outside a function that make its inputs.
using Bindings = std::map<std::string, std::string>;

class Search {
 public:
  Search(const FunctionLibraryDefinition& library, bool check) : library_(library), check_(check) {}

  void ReadGraph(const Graph& graph) {
    for (const Node* node : graph.op_nodes()) ReadMetadata(node->def());
    for (const std::string& name : library_.ListFunctionNames()) {
      for (const NodeDef& node : library_.Find(name)->node_def()) ReadMetadata(node);
    }
    // Most graphs are not watched: the rest examines each op and its line.
    if (absl::c_none_of(computations_, [](const auto& each) { return each.second.check; })) return;
    std::vector<NodeDef> nodes;
    std::map<std::string, std::string> sources;
    for (const Node* node : graph.op_nodes()) {
      nodes.push_back(node->def());
      sources[node->name()] = UserLine(node->GetStackTrace().get()).Text();
    }
    Read(nodes, sources, {}, {});
  }

  std::vector<HostRace> Races() const {
    std::vector<HostRace> races;
    for (const auto& [name, computation] : computations_) {
      if (!computation.check || computation.replicas < 2) continue;
      for (const auto& [handle, accesses] : computation.accesses) {
        AddRaces(name, computation, accesses, &races);
      }
    }
    return races;
  }

 private:
  void ReadMetadata(const NodeDef& node) {
    if (node.op() != "TPUReplicateMetadata") return;
    Computation& computation = computations_[Text(node, kTpuReplicate)];
    const auto replicas = node.attr().find("num_replicas");
    if (replicas != node.attr().end()) computation.replicas = replicas->second.i();
    ProgramOptions options;
    options.check = check_;
    if (ApplyTracedOptions(Text(node, kCompileOptions), &options).ok()) {
      computation.check = options.check;
    }
  }

  template <typename Nodes>
  void Read(const Nodes& nodes, const std::map<std::string, std::string>& sources,
            const Place& body, const Bindings& bindings) {
    std::map<std::string, const NodeDef*> by_name;
    for (const NodeDef& node : nodes) by_name[node.name()] = &node;
    const auto maker_of = [&](const std::string& input) {
      return MakerOf(input, by_name, bindings);
    };
    const auto branches = FindSwitchBranches(by_name, maker_of);
    for (const NodeDef& node : nodes) {
      const Place place = PlaceOf(node, body, branches);
      if (const auto found = computations_.find(place.computation); found != computations_.end()) {
        if (place.cluster.empty()) {
          if (IsCollective(node.op())) found->second.collectives.insert(place.loops);
        } else if (const Use use = UseBy(node.op()); use != Use::kNone && node.input_size() > 0) {
          const auto source = sources.find(node.name());
          const bool known = source != sources.end() && !source->second.empty();
          found->second.accesses[maker_of(node.input(0))].push_back(
              {{node.name(), known ? source->second : Text(node, kPythonLine), place.cluster_name,
                place.cluster_function},
               use,
               place.cluster,
               place.loops,
               !place.branches.empty()});
        }
      }
      ReadCallees(node, place, maker_of);
    }
  }

  static Place PlaceOf(const NodeDef& node, const Place& body,
                       const std::map<std::string, Branches>& branches) {
    Place place = body;
    if (std::string own = Text(node, kTpuReplicate); !own.empty()) {
      place.computation = std::move(own);
    }
    // A function that is called twice has each cluster twice.
    const std::string cluster = Text(node, kOutsideCompilation);
    if (place.cluster.empty() && !cluster.empty()) {
      place.cluster = absl::StrCat(body.path, "/", cluster);
      place.cluster_name = cluster;
      place.cluster_function = body.function;
    }
    if (const auto found = branches.find(node.name()); found != branches.end()) {
      place.branches.insert(found->second.begin(), found->second.end());
    }
    return place;
  }

  void ReadCallees(const NodeDef& node, const Place& place,
                   const std::function<std::string(const std::string&)>& maker_of) {
    Place inner = place;
    absl::StrAppend(&inner.path, "/", node.name());
    if (IsLoop(node.op())) inner.loops.push_back(inner.path);
    if (IsConditional(node.op())) inner.branches.insert(inner.path);
    // The first input of a conditional says which branch is taken.
    const int skipped = IsConditional(node.op()) ? 1 : 0;
    for (const std::string& callee : FunctionsCalledBy(node)) {
      ReadCallee(node, callee, skipped, inner, maker_of);
    }
  }

  void ReadCallee(const NodeDef& node, const std::string& name, int skipped, const Place& place,
                  const std::function<std::string(const std::string&)>& maker_of) {
    const FunctionDef* const function = library_.Find(name);
    if (function == nullptr || !open_.insert(name).second) return;
    Bindings bindings;
    for (int i = 0; i < function->signature().input_arg_size(); ++i) {
      if (i + skipped >= node.input_size()) break;
      bindings[function->signature().input_arg(i).name()] = maker_of(node.input(i + skipped));
    }
    std::map<std::string, std::string> sources;
    if (const auto* traces = library_.GetStackTraces(name)) {
      for (const auto& [op, trace] : *traces) sources[op] = UserLine(trace.get()).Text();
    }
    Place body = place;
    body.function = name;
    Read(function->node_def(), sources, body, bindings);
    open_.erase(name);
  }

  // The node whose result an input is, traced through calls and ops that pass it on.
  std::string MakerOf(const std::string& input,
                      const std::map<std::string, const NodeDef*>& by_name,
                      const Bindings& bindings) const {
    std::string name = input.substr(0, input.find(':'));
    for (auto node = by_name.find(name); node != by_name.end(); node = by_name.find(name)) {
      const NodeDef& maker = *node->second;
      if (maker.op() == "_Arg" || maker.op() == "VarHandleOp") {
        const std::string shared = Text(maker, "shared_name");
        return shared.empty() ? name : absl::StrCat("variable ", shared);
      }
      if (!PassesOn(maker)) return name;
      name = maker.input(0).substr(0, maker.input(0).find(':'));
    }
    const auto bound = bindings.find(name);
    return bound == bindings.end() ? name : bound->second;
  }

  // Whether there is a collective between the two that all replicas may have to reach. If both are
  // in one loop, collectives outside it don't separate its iterations.
  static bool MayBeKeptApart(const Computation& computation, const Access& a, const Access& b) {
    if (a.cluster == b.cluster) return false;
    const auto differ =
        std::mismatch(a.loops.begin(), a.loops.end(), b.loops.begin(), b.loops.end());
    const std::vector<std::string> common(a.loops.begin(), differ.first);
    return absl::c_any_of(computation.collectives, [&](const std::vector<std::string>& loops) {
      return loops.size() >= common.size() &&
             std::equal(common.begin(), common.end(), loops.begin());
    });
  }

  static bool Race(const Computation& computation, const Access& write, const Access& other,
                   bool same) {
    if (write.use == Use::kWrite && same) return true;
    if (write.use != Use::kWrite && (write.use != Use::kAdd || other.use != Use::kRead)) {
      return false;
    }
    return !MayBeKeptApart(computation, write, other);
  }

  static void AddRaces(const std::string& name, const Computation& computation,
                       const std::vector<Access>& accesses, std::vector<HostRace>* races) {
    for (size_t i = 0; i < accesses.size(); ++i) {
      for (size_t j = 0; j < accesses.size(); ++j) {
        const Access& write = accesses[i];
        const Access& other = accesses[j];
        // Two writes count as one race.
        if (other.use == Use::kWrite && j < i) continue;
        if (Race(computation, write, other, i == j)) {
          // If only one is, another replica performs the one outside.
          const bool in_branches = write.in_branch && other.in_branch;
          races->push_back({name, write.place, other.place, in_branches});
        }
      }
    }
  }

  const FunctionLibraryDefinition& library_;
  const bool check_;
  std::map<std::string, Computation> computations_;
  absl::flat_hash_set<std::string> open_;
};

}  // namespace

std::vector<HostRace> FindHostRaces(const Graph& graph, const FunctionLibraryDefinition& library,
                                    bool check) {
  Search search(library, check);
  search.ReadGraph(graph);
  return search.Races();
}

}  // namespace tf_tpu_ext
