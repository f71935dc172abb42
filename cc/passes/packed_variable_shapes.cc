// Where a program reads a packed variable of unknown shape, the bridge asks for the variable's
// shape by an op without a device. The placer would put it on the composite device that stands for
// all the variable's cores, from which nothing but function arguments can be fed; this pass puts it
// on one of the cores.
#include "absl/strings/match.h"
#include "cc/ops/execute_nodes.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Edge;
using tensorflow::Node;

// After TensorFlow's own passes of the phase, the bridge among them.
constexpr int kShapesPhase = 999;

// The device is an assigned one until the bridge has rewritten the graph, a requested one then.
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
