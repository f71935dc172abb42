// The host's side of a computation has its own branches and loops, with transfers in them that must
// run on the host of their replica. As a single op, such a branch would be placed where a resource
// that it uses is, for example a summary writer on the first host. If the graph spans several
// hosts, this pass makes TensorFlow lower these ops, so that each op in them is placed on its own.
#include <map>
#include <string>
#include <vector>

#include "cc/ops/execute_nodes.h"
#include "cc/ops/reachable_nodes.h"
#include "cc/passes/pod_jobs.h"
#include "tensorflow/core/common_runtime/lower_functional_ops.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionLibraryDefinition;
using tensorflow::LowerFunctionalOpsPass;
using tensorflow::Node;
using tensorflow::NodeDef;

// Before TensorFlow's pass that lowers them, which has 10.
constexpr int kBranchesPhase = 9;

bool IsBranch(const std::string& op) {
  return op == "If" || op == "StatelessIf" || op == "While" || op == "StatelessWhile" ||
         op == "Case" || op == "StatelessCase";
}

bool HoldsTransfers(const NodeDef& node, const FunctionLibraryDefinition& library) {
  return IsBranch(node.op()) && AnyNodeCalledBy(node, library, [](const NodeDef& inner) {
           return IsHostTransfer(inner.op());
         });
}

// Nested ones are lowered after those around them.
absl::Status MarkInFunctions(FunctionLibraryDefinition* library) {
  for (const std::string& name : library->ListFunctionNames()) {
    const auto record = library->FindRecord(name);
    tensorflow::FunctionDef function = record->fdef();
    bool changed = false;
    for (NodeDef& node : *function.mutable_node_def()) {
      if (!HoldsTransfers(node, *library)) continue;
      (*node.mutable_attr())[LowerFunctionalOpsPass::kLowerUsingSwitchMergeAttr].set_b(true);
      changed = true;
    }
    if (changed) {
      TF_RETURN_IF_ERROR(library->ReplaceFunction(name, function, record->stack_traces()));
    }
  }
  return absl::OkStatus();
}

class HostBranchesInPod : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr || *options.graph == nullptr || options.device_set == nullptr ||
        options.flib_def == nullptr || PodJobsOf(*options.device_set).empty()) {
      return absl::OkStatus();
    }
    bool any = false;
    for (Node* node : (*options.graph)->op_nodes()) {
      if (!HoldsTransfers(node->def(), *options.flib_def)) continue;
      node->AddAttr(LowerFunctionalOpsPass::kLowerUsingSwitchMergeAttr, true);
      any = true;
    }
    return any ? MarkInFunctions(options.flib_def) : absl::OkStatus();
  }
};

REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, kBranchesPhase,
                      HostBranchesInPod);

}  // namespace
}  // namespace tf_tpu_ext
