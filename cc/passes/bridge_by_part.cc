// Bridges the computations of a session's graph one by one, each only once: when a session's graph
// grows, all passes run again on the whole of it.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/passes/bridged_parts.h"
#include "cc/passes/computation_parts.h"
#include "cc/passes/part_graph.h"
#include "tensorflow/compiler/mlir/mlir_graph_optimization_pass.h"
#include "tensorflow/compiler/mlir/tf2xla/internal/mlir_bridge_pass_util.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/lib/strings/proto_serialization.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/fingerprint.h"
#include "tensorflow/core/platform/statusor.h"
#include "tensorflow/core/public/session_options.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::GraphDef;
using tensorflow::GraphOptimizationPassOptions;

// After the passes that prepare for the bridge, and before TensorFlow's, which takes the graph as a
// whole, if anything is left to do.
constexpr int kPartsPhase = -1;
constexpr size_t kMostBytes = size_t{256} << 20;

std::string KeyOf(const Graph& graph, const GraphOptimizationPassOptions& options) {
  GraphDef definition;
  graph.ToGraphDef(&definition);
  *definition.mutable_library() = options.flib_def->ReachableDefinitions(graph).ToProto();
  std::string text;
  tensorflow::SerializeToStringDeterministic(definition, &text);
  std::string config;
  tensorflow::SerializeToStringDeterministic(options.session_options->config, &config);
  absl::StrAppend(&text, config);
  for (const tensorflow::Device* device : options.device_set->devices()) {
    absl::StrAppend(&text, device->name(), ";");
  }
  const tensorflow::Fprint128 fingerprint = tensorflow::Fingerprint128(text);
  return absl::StrCat(absl::Hex(fingerprint.low64), absl::Hex(fingerprint.high64), text.size());
}

// Whether the library can hold these functions alongside its own.
bool Fits(const GraphDef& made, const FunctionLibraryDefinition& library) {
  for (const FunctionDef& function : made.library().function()) {
    const auto own = library.FindRecord(function.signature().name());
    if (own != nullptr && !tensorflow::FunctionDefsEqual(own->fdef(), function)) return false;
  }
  return true;
}

class BridgeByPart : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr || *options.graph == nullptr || options.flib_def == nullptr ||
        options.session_options == nullptr || options.device_set == nullptr ||
        options.is_function_graph || !options.enable_tf2xla_mlir_bridge ||
        !tensorflow::IsSupportedByReplicatedBridge(**options.graph, options.flib_def)) {
      return absl::OkStatus();
    }
    Graph* const whole = options.graph->get();
    struct Bridged {
      PartGraph part;
      BridgedParts::Made made;
    };
    const std::vector<ComputationPart> parts = DivideIntoParts(*whole, *options.flib_def);
    std::vector<Bridged> bridged;
    for (const ComputationPart& part : parts) {
      TF_ASSIGN_OR_RETURN(PartGraph part_graph, MakePartGraph(part, *whole));
      TF_ASSIGN_OR_RETURN(BridgedParts::Made made, Bridge(&part_graph, options));
      if (made == nullptr) return absl::OkStatus();
      TF_RETURN_IF_ERROR(options.flib_def->AddLibrary(made->library()));
      bridged.push_back({std::move(part_graph), std::move(made)});
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      TF_RETURN_IF_ERROR(ReplaceComputations(parts[i], bridged[i].part, *bridged[i].made, whole));
    }
    return absl::OkStatus();
  }

 private:
  // Returns null if the part has to be bridged with the rest.
  absl::StatusOr<BridgedParts::Made> Bridge(PartGraph* part,
                                            const GraphOptimizationPassOptions& options) {
    const std::string key = KeyOf(*part->graph, options);
    BridgedParts::Made kept = kept_.Find(key);
    if (kept != nullptr && Fits(*kept, *options.flib_def)) return kept;
    // Other parts may have functions with the same names.
    FunctionLibraryDefinition library(*options.flib_def);
    GraphOptimizationPassOptions of_part = options;
    of_part.graph = &part->graph;
    of_part.flib_def = &library;
    TF_RETURN_IF_ERROR(tensorflow::MlirV1CompatGraphOptimizationPass().Run(of_part));
    std::optional<GraphDef> made = MadeByBridge(*part, *part->graph);
    if (!made.has_value()) return nullptr;
    *made->mutable_library() = library.ReachableDefinitions(*made).ToProto();
    if (!Fits(*made, *options.flib_def)) return nullptr;
    kept = std::make_shared<const GraphDef>(*std::move(made));
    kept_.Keep(key, kept);
    return kept;
  }

  BridgedParts kept_{kMostBytes};
};

REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, kPartsPhase,
                      BridgeByPart);

}  // namespace
}  // namespace tf_tpu_ext
