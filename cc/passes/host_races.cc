#include "cc/passes/host_races.h"

#include <cstddef>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cc/base/user_lines.h"
#include "cc/ops/op_names.h"
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

struct Access {
  HostAccess place;
  Use use = Use::kNone;
  std::string cluster;
};

struct Computation {
  int replicas = 1;
  bool check = false;
  bool has_collectives = false;
  // By the node that makes the variable's handle.
  std::map<std::string, std::vector<Access>> accesses;
};

// What the inputs of a function are outside of it: the nodes that make them.
using Bindings = std::map<std::string, std::string>;

class Search {
 public:
  Search(const FunctionLibraryDefinition& library, bool check) : library_(library), check_(check) {}

  void ReadGraph(const Graph& graph) {
    for (const Node* node : graph.op_nodes()) ReadMetadata(node->def());
    for (const std::string& name : library_.ListFunctionNames()) {
      for (const NodeDef& node : library_.Find(name)->node_def()) ReadMetadata(node);
    }
    // Most graphs are not watched: what follows looks at each op and its line.
    if (absl::c_none_of(computations_, [](const auto& each) { return each.second.check; })) return;
    std::vector<NodeDef> nodes;
    std::map<std::string, std::string> sources;
    for (const Node* node : graph.op_nodes()) {
      nodes.push_back(node->def());
      sources[node->name()] = UserLine(node->GetStackTrace().get()).Text();
    }
    Read(nodes, sources, "", {});
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

  // `computation` is that of the whole body; empty for the host's.
  template <typename Nodes>
  void Read(const Nodes& nodes, const std::map<std::string, std::string>& sources,
            const std::string& computation, const Bindings& bindings) {
    std::map<std::string, const NodeDef*> by_name;
    for (const NodeDef& node : nodes) by_name[node.name()] = &node;
    for (const NodeDef& node : nodes) {
      const std::string own = Text(node, kTpuReplicate);
      const std::string& owner = own.empty() ? computation : own;
      const auto found = computations_.find(owner);
      if (found != computations_.end()) {
        const std::string cluster = Text(node, kOutsideCompilation);
        if (cluster.empty()) {
          found->second.has_collectives |= IsCollective(node.op());
        } else if (const Use use = UseBy(node.op()); use != Use::kNone && node.input_size() > 0) {
          const auto source = sources.find(node.name());
          found->second.accesses[MakerOf(node.input(0), by_name, bindings)].push_back(
              {{node.name(), source == sources.end() ? "" : source->second}, use, cluster});
        }
      }
      if (!IsConditional(node.op())) ReadCallees(node, owner, by_name, bindings);
    }
  }

  void ReadCallees(const NodeDef& node, const std::string& owner,
                   const std::map<std::string, const NodeDef*>& by_name, const Bindings& bindings) {
    for (const auto& [attribute, value] : node.attr()) {
      if (!value.has_func() || !open_.insert(value.func().name()).second) continue;
      if (const FunctionDef* function = library_.Find(value.func().name())) {
        Bindings inner;
        for (int i = 0; i < function->signature().input_arg_size() && i < node.input_size(); ++i) {
          inner[function->signature().input_arg(i).name()] =
              MakerOf(node.input(i), by_name, bindings);
        }
        std::map<std::string, std::string> sources;
        if (const auto* traces = library_.GetStackTraces(value.func().name())) {
          for (const auto& [name, trace] : *traces) sources[name] = UserLine(trace.get()).Text();
        }
        Read(function->node_def(), sources, owner, inner);
      }
      open_.erase(value.func().name());
    }
  }

  // The node whose result an input is, through ops that pass it on and through calls.
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
      if (maker.input_size() != 1 || maker.input(0).front() == '^') return name;
      name = maker.input(0).substr(0, maker.input(0).find(':'));
    }
    const auto bound = bindings.find(name);
    return bound == bindings.end() ? name : bound->second;
  }

  static bool Race(const Computation& computation, const Access& write, const Access& other,
                   bool same) {
    if (write.use == Use::kWrite) return true;
    if (write.use != Use::kAdd || other.use != Use::kRead || same) return false;
    return write.cluster == other.cluster || !computation.has_collectives;
  }

  static void AddRaces(const std::string& name, const Computation& computation,
                       const std::vector<Access>& accesses, std::vector<HostRace>* races) {
    for (size_t i = 0; i < accesses.size(); ++i) {
      for (size_t j = 0; j < accesses.size(); ++j) {
        const Access& write = accesses[i];
        const Access& other = accesses[j];
        // Two writes are one race.
        if (other.use == Use::kWrite && j < i) continue;
        if (Race(computation, write, other, i == j)) {
          races->push_back({name, write.place, other.place});
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
