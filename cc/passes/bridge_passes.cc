#include "cc/passes/bridge_passes.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/passes/bridge_error.h"
#include "llvm/ADT/StringRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "tensorflow/compiler/jit/flags.h"
#include "tensorflow/compiler/tf2xla/mlir_bridge_pass.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/graph/graph_debug_info_builder.h"
#include "tensorflow/core/public/session_options.h"

namespace tensorflow {
// Declared in a header that needs MLIR's own headers.
bool IsSupportedByReplicatedBridge(const Graph& graph,
                                   const FunctionLibraryDefinition* function_library);
}  // namespace tensorflow

namespace tf_tpu_ext {
namespace {

using tensorflow::ConfigProto;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::MlirOptimizationPassState;

// A free priority in TensorFlow's registry of function passes.
constexpr int kFunctionPassPriority = 77;
constexpr char kPassName[] = "tf_tpu_ext_bridge";

// The bridge asks the ConfigProto of the graph it is given; the process-wide flag would also change
// graphs that have nothing to do with TPUs.
ConfigProto WithBridge(const ConfigProto& config) {
  ConfigProto enabled = config;
  enabled.mutable_experimental()->set_enable_mlir_bridge(true);
  return enabled;
}

// The nodes of a type that belong to TPU computations, each with the Python line that made it.
std::string Locate(const std::string& type, const Graph& graph,
                   const FunctionLibraryDefinition& library) {
  std::vector<std::string> places;
  const auto add = [&places](const std::string& name,
                             const std::shared_ptr<tensorflow::AbstractStackTrace>& trace) {
    std::string place = name;
    if (trace != nullptr) {
      const std::vector<tensorflow::StackFrame> frames = trace->GetUserFrames(/*limit=*/-1);
      if (!frames.empty()) {
        absl::StrAppend(&place, " (", frames.back().file_name, ":", frames.back().line_number, ")");
      }
    }
    places.push_back(std::move(place));
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

class FunctionBridgePass : public tensorflow::MlirBridgePass {
 public:
  llvm::StringRef name() const override { return kPassName; }

  MlirOptimizationPassState GetPassState(const tensorflow::DeviceSet* devices,
                                         const ConfigProto& config, const Graph& graph,
                                         const FunctionLibraryDefinition& library) const override {
    if (!tensorflow::IsSupportedByReplicatedBridge(graph, &library)) {
      return MlirOptimizationPassState::Disabled;
    }
    return MlirBridgePass::GetPassState(devices, WithBridge(config), graph, library);
  }

  absl::Status Run(const std::string& function_name, const ConfigProto& config,
                   mlir::ModuleOp module, const Graph& graph,
                   const FunctionLibraryDefinition& library) override {
    return ExplainBridgeError(
        MlirBridgePass::Run(function_name, WithBridge(config), module, graph, library),
        [&](const std::string& type) { return Locate(type, graph, library); });
  }
};

class SessionBridgePass : public tensorflow::MlirBridgeV1CompatPass {
 public:
  llvm::StringRef name() const override { return kPassName; }

  MlirOptimizationPassState GetPassState(const tensorflow::DeviceSet* devices,
                                         const ConfigProto& config, const Graph& graph,
                                         const FunctionLibraryDefinition& library) const override {
    if (!tensorflow::IsSupportedByReplicatedBridge(graph, &library)) {
      return MlirOptimizationPassState::Disabled;
    }
    return MlirBridgeV1CompatPass::GetPassState(devices, WithBridge(config), graph, library);
  }

  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options,
                   mlir::ModuleOp module) override {
    tensorflow::SessionOptions session_options;
    if (options.session_options != nullptr) session_options = *options.session_options;
    session_options.config = WithBridge(session_options.config);
    tensorflow::GraphOptimizationPassOptions with_bridge = options;
    with_bridge.session_options = &session_options;
    return ExplainBridgeError(MlirBridgeV1CompatPass::Run(with_bridge, module));
  }
};

}  // namespace

void RegisterBridgePasses() {
  tensorflow::MlirOptimizationPassRegistry::Global().Add(kFunctionPassPriority,
                                                         std::make_unique<FunctionBridgePass>());
  auto& v1 = tensorflow::MlirV1CompatOptimizationPassRegistry::Global();
  v1.ClearPass();
  v1.Add(std::make_unique<SessionBridgePass>());
  // Variables here have no device layout to reformat to, and the pass breaks host training loops.
  tensorflow::GetMlirCommonFlags()->tf_mlir_enable_tpu_variable_runtime_reformatting_pass = false;
}

}  // namespace tf_tpu_ext
