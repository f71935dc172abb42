// Runs the passes that precede the bridge, on functions and on graphs of sessions.
#include "cc/passes/preparing_passes.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/machine.h"
#include "cc/base/process.h"
#include "cc/check/findings.h"
#include "cc/passes/compile_marks.h"
#include "cc/passes/core_elements.h"
#include "cc/passes/dynamic_shape_marks.h"
#include "cc/passes/fold_clusters.h"
#include "cc/passes/host_races.h"
#include "cc/passes/order_computations.h"
#include "cc/transfer/transfer_stats.h"
#include "tensorflow/compiler/mlir/mlir_graph_optimization_pass.h"
#include "tensorflow/compiler/mlir/tf2xla/internal/mlir_bridge_pass_util.h"
#include "tensorflow/core/common_runtime/function_optimization_registry.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;

// The bridge runs in phases -1 and 0 for graphs of sessions.
constexpr int kBeforeBridgePhase = -2;

ClusterPlace PlaceOf(const HostAccess& access) { return {access.function, access.cluster}; }

// Steps tell which replicas take the branches that races are in.
void NoteHostRaces(const std::vector<HostRace>& races, const std::vector<ClusterReport>& clusters) {
  std::map<ClusterPlace, std::string> noted_as;
  for (const ClusterReport& report : clusters) noted_as[report.place] = report.noted_as;
  Findings& findings = *Process::Get().findings;
  for (const HostRace& race : races) {
    Finding finding;
    finding.kind = kRaceFinding;
    finding.program = race.computation;
    finding.op = race.write.op;
    finding.source = race.write.source;
    finding.other_op = race.other.op;
    finding.other_source = race.other.source;
    if (!race.in_branches) {
      findings.Add(std::move(finding));
      continue;
    }
    const std::string& cluster = noted_as[PlaceOf(race.write)];
    const std::string& other = noted_as[PlaceOf(race.other)];
    if (!cluster.empty() && !other.empty()) {
      findings.AddPossible({cluster, other, std::move(finding)});
    }
  }
}

absl::StatusOr<FoldedGraph> PrepareForBridge(bool of_session, Graph* graph,
                                             FunctionLibraryDefinition* library) {
  if (!tensorflow::IsSupportedByReplicatedBridge(*graph, library)) return FoldedGraph();
  const std::vector<HostRace> races =
      FindHostRaces(*graph, *library, GetMachineOptions().programs.check);
  std::set<ClusterPlace> noted;
  for (const HostRace& race : races) {
    // Branches in the graph itself are made of Switch and Merge, which don't keep a call without
    // results.
    if (!race.in_branches || race.write.function.empty() || race.other.function.empty()) continue;
    noted.insert({PlaceOf(race.write), PlaceOf(race.other)});
  }
  TF_RETURN_IF_ERROR(DropCompileMarks(graph, library));
  TF_RETURN_IF_ERROR(DropDynamicShapeMarks(graph, library));
  TF_RETURN_IF_ERROR(TakeElementsFromHost(graph, library));
  TF_ASSIGN_OR_RETURN(
      FoldedGraph folded,
      FoldClusters(graph, library, GetMachineOptions().programs.fold_host_calls, noted));
  NoteHostRaces(races, folded.clusters);
  for (ClusterReport& report : folded.clusters) {
    ClusterRecord record;
    record.cluster = std::move(report.cluster);
    record.not_folded_because = std::move(report.reason);
    record.source = std::move(report.source);
    record.counted_as = std::move(report.counted_as);
    Process::Get().transfer_stats->RecordCluster(std::move(record));
  }
  TF_RETURN_IF_ERROR(OrderComputations(of_session, graph, library));
  return folded;
}

// Several nodes may have become one.
void Rename(const std::map<std::string, std::string>& replaced, std::vector<std::string>* names) {
  std::vector<std::string> renamed;
  for (const std::string& name : *names) {
    const auto call = replaced.find(name);
    const std::string& now = call == replaced.end() ? name : call->second;
    if (std::find(renamed.begin(), renamed.end(), now) == renamed.end()) renamed.push_back(now);
  }
  names->swap(renamed);
}

// TensorFlow has room for one function pass, the one that runs the MLIR passes: this one runs
// before it and then calls it.
class PrepareThenMlirPass : public tensorflow::FunctionOptimizationPass {
 public:
  absl::Status Run(const std::string& function_name, const tensorflow::DeviceSet& device_set,
                   const tensorflow::ConfigProto& config_proto,
                   const FunctionOptions& function_options, std::unique_ptr<Graph>* graph,
                   FunctionLibraryDefinition* library,
                   std::vector<std::string>* control_ret_node_names,
                   bool* control_rets_updated) override {
    TF_ASSIGN_OR_RETURN(const FoldedGraph folded,
                        PrepareForBridge(/*of_session=*/false, graph->get(), library));
    if (!folded.replaced.empty()) Rename(folded.replaced, control_ret_node_names);
    return mlir_.Run(function_name, device_set, config_proto, function_options, graph, library,
                     control_ret_node_names, control_rets_updated);
  }

 private:
  tensorflow::MlirFunctionOptimizationPass mlir_;
};

class PrepareInSessionPass : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr || *options.graph == nullptr || options.flib_def == nullptr ||
        options.is_function_graph) {
      return absl::OkStatus();
    }
    return PrepareForBridge(/*of_session=*/true, options.graph->get(), options.flib_def).status();
  }
};

REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, kBeforeBridgePhase,
                      PrepareInSessionPass);

}  // namespace

void RegisterPreparingPass() {
  tensorflow::FunctionOptimizationPassRegistry::Global().Init(
      std::make_unique<PrepareThenMlirPass>());
}

}  // namespace tf_tpu_ext
