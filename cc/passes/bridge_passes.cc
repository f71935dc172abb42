#include "cc/passes/bridge_passes.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/abi/tensorflow/mlir.h"
#include "cc/base/user_lines.h"
#include "cc/passes/bridge_error.h"
#include "llvm/ADT/StringRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "tensorflow/compiler/jit/flags.h"
#include "tensorflow/compiler/mlir/mlir_graph_optimization_pass.h"
#include "tensorflow/compiler/mlir/tensorflow/transforms/host_runtime/lower_cluster_to_runtime_ops.h"
#include "tensorflow/compiler/mlir/tf2xla/api/v2/cluster_tf.h"
#include "tensorflow/compiler/mlir/tf2xla/internal/mlir_bridge_pass_util.h"
#include "tensorflow/compiler/tf2xla/mlir_bridge_pass.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/graph/graph_debug_info_builder.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/public/session_options.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::ConfigProto;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::MlirOptimizationPassState;

// A free priority in TensorFlow's registry of function passes.
constexpr int kFunctionPassPriority = 77;
constexpr char kPassName[] = "tf_tpu_ext_bridge";
// What the bridge calls the compiler of programs.
constexpr char kCompiler[] = "XLA_TPU_JIT";

// Variables here have no device layout to be reformatted to, and the pass breaks host training
// loops. Not done at load time: once the flags have been read, the program can no longer set them
// through its environment.
void KeepVariableLayouts() {
  [[maybe_unused]] static const bool kept = [] {
    return tensorflow::GetMlirCommonFlags()->tf_mlir_enable_tpu_variable_runtime_reformatting_pass =
               false;
  }();
}

// Ignores both the ConfigProto's switch for the bridge and the process-wide one: without the bridge
// a TPU graph can't run at all, and setting a switch would also change other graphs.
MlirOptimizationPassState StateFor(const Graph& graph, const FunctionLibraryDefinition& library) {
  if (!tensorflow::IsSupportedByReplicatedBridge(graph, &library)) {
    return MlirOptimizationPassState::Disabled;
  }
  KeepVariableLayouts();
  return MlirOptimizationPassState::Enabled;
}

// The nodes of a type that belong to TPU computations, each with the Python line that made it.
std::string LocateOp(const std::string& type, const Graph& graph,
                     const FunctionLibraryDefinition& library) {
  std::vector<std::string> places;
  const auto add = [&places](const std::string& name,
                             const std::shared_ptr<tensorflow::AbstractStackTrace>& trace) {
    const SourceLine line = UserLine(trace.get());
    places.push_back(line.known() ? absl::StrCat(name, " (", line.Text(), ")") : name);
  };
  for (const tensorflow::Node* node : graph.op_nodes()) {
    if (node->type_string() == type && node->attrs().Find("_tpu_replicate") != nullptr) {
      add(node->name(), node->GetStackTrace());
    }
  }
  for (const std::string& name : library.ListFunctionNames()) {
    const tensorflow::StackTracesMap* traces = library.GetStackTraces(name);
    for (const tensorflow::NodeDef& node : library.Find(name)->node_def()) {
      if (node.op() != type || node.attr().count("_tpu_replicate") == 0) continue;
      const bool traced = traces != nullptr && traces->count(node.name()) > 0;
      add(node.name(), traced ? traces->at(node.name()) : nullptr);
    }
  }
  return absl::StrJoin(places, ", ");
}

class FunctionBridgePass : public tensorflow::MlirOptimizationPass {
 public:
  llvm::StringRef name() const override { return kPassName; }

  MlirOptimizationPassState GetPassState(const tensorflow::DeviceSet* devices,
                                         const ConfigProto& /*config*/, const Graph& graph,
                                         const FunctionLibraryDefinition& library) const override {
    // The bridge has to know the devices.
    return devices == nullptr ? MlirOptimizationPassState::Disabled : StateFor(graph, library);
  }

  absl::Status Run(const std::string& function_name, const ConfigProto& /*config*/,
                   mlir::ModuleOp module, const Graph& graph,
                   const FunctionLibraryDefinition& library) override {
    return ExplainBridgeError(RunBridge(function_name, module), [&](const std::string& type) {
      return LocateOp(type, graph, library);
    });
  }

 private:
  // TensorFlow's MlirBridgePass would do exactly the same, but checks its switch first.
  static absl::Status RunBridge(const std::string& function_name, mlir::ModuleOp module) {
    // The functions of such calls go through the bridge when they are called.
    if (tensorflow::HasTPUPartitionedCallOpInModule(module)) return absl::OkStatus();
    // Another pass may have run the bridge.
    if (!tensorflow::IsSupportedByReplicatedBridge(module)) return absl::OkStatus();
    TF_RETURN_IF_ERROR(tensorflow::tf2xla::v2::RunFunctionTf2xlaClusteringBridge(
        module, /*is_supported_by_replicated_brige=*/true, /*is_in_fallback_enabled_mode=*/false,
        function_name));
    TF_RETURN_IF_ERROR(tensorflow::tfrt_compiler::RunLowerClusterToRuntimeOpsPassPipeline(
        module, tsl::DeviceType(kCompiler), function_name));
    return ExportFromTensorflowDialectToExecutor(module, function_name);
  }
};

class SessionBridgePass : public tensorflow::MlirBridgeV1CompatPass {
 public:
  llvm::StringRef name() const override { return kPassName; }

  // The base class's Run checks this too.
  MlirOptimizationPassState GetPassState(const tensorflow::DeviceSet* /*devices*/,
                                         const ConfigProto& /*config*/, const Graph& graph,
                                         const FunctionLibraryDefinition& library) const override {
    return StateFor(graph, library);
  }

  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options,
                   mlir::ModuleOp module) override {
    const tensorflow::SessionOptions defaults;
    tensorflow::GraphOptimizationPassOptions with_session = options;
    if (options.session_options == nullptr) with_session.session_options = &defaults;
    return ExplainBridgeError(MlirBridgeV1CompatPass::Run(with_session, module));
  }
};

}  // namespace

void RegisterBridgePasses() {
  tensorflow::MlirOptimizationPassRegistry::Global().Add(kFunctionPassPriority,
                                                         std::make_unique<FunctionBridgePass>());
  auto& v1 = tensorflow::MlirV1CompatOptimizationPassRegistry::Global();
  v1.ClearPass();
  v1.Add(std::make_unique<SessionBridgePass>());
}

}  // namespace tf_tpu_ext
