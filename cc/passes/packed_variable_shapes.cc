// Where a program reads a packed variable of unknown shape, the bridge reads the variable's shape
// with an op that has no device. The placer would put it on the composite device that stands for
// all the variable's cores, which can feed nothing but function arguments to other devices; this
// pass puts it on one of the cores.
#include "absl/strings/match.h"
#include "cc/ops/execute_nodes.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Edge;
using tensorflow::Node;

// After TensorFlow's own passes of the phase, which include the bridge.
constexpr int kShapesPhase = 999;

// The device is an assigned one until the bridge has rewritten the graph, and a requested one after
// that.
bool IsOnCompositeDevice(const Node& node) {
  constexpr char kComposite[] = "device:COMPOSITE:";
  return absl::StrContains(node.assigned_device_name(), kComposite) ||
         absl::StrContains(node.requested_device(), kComposite);
}

class PackedVariableShapes : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr || *options.graph == nullptr) return absl::OkStatus();
    for (Node* node : (*options.graph)->op_nodes()) {
      if (node->type_string() != "VariableShape" || !node->requested_device().empty()) continue;
      const Node* variable = nullptr;
      if (!node->input_node(0, &variable).ok() || !IsOnCompositeDevice(*variable)) continue;
      for (const Edge* edge : variable->out_edges()) {
        if (!IsExecute(*edge->dst())) continue;
        node->set_requested_device(edge->dst()->requested_device());
        break;
      }
    }
    return absl::OkStatus();
  }
};

REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, kShapesPhase,
                      PackedVariableShapes);

}  // namespace
}  // namespace tf_tpu_ext
