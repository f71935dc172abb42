// Usually one compile op serves all replicas of a step. Where the shape of an argument is known
// only inside a replica, the bridge makes a compile op for each replica: this pass tells these ops
// which of them belong together.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/device/virtual_device.h"
#include "cc/ops/execute_nodes.h"
#include "cc/pods/pod.h"
#include "cc/runtime/launch_ids.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/platform/fingerprint.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Edge;
using tensorflow::Node;

// After TensorFlow's own passes of the phase, which run the bridge and inline functions.
constexpr int kLaunchGroupsPhase = 998;

// The devices of the cores that execute what the op compiles: in a pod, several have the same
// number.
std::set<std::string> CoresOf(const Node& compile) {
  std::set<std::string> cores;
  for (const Edge* edge : compile.out_edges()) {
    if (!IsExecute(*edge->dst())) continue;
    const std::string& device = edge->dst()->requested_device();
    if (CoreOfDevice(device).has_value()) cores.insert(device);
  }
  return cores;
}

class LaunchGroups : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr || *options.graph == nullptr) return absl::OkStatus();
    // By what is compiled and for which core, in the order of the graph: the n-th op of one replica
    // belongs with the n-th ops of the others.
    std::map<std::pair<std::string, std::string>, int> seen;
    std::vector<Node*> nodes;
    for (Node* node : (*options.graph)->op_nodes()) {
      // In one host's part of a pod's graph, another host has already compared them all.
      if (node->type_string() == "_TPUCompileMlir" && !HasPod(node->attrs())) nodes.push_back(node);
    }
    std::sort(nodes.begin(), nodes.end(),
              [](const Node* a, const Node* b) { return a->id() < b->id(); });
    for (Node* node : nodes) {
      std::string module, metadata;
      tensorflow::tpu::TPUCompileMetadataProto parsed;
      if (!tensorflow::GetNodeAttr(node->attrs(), "mlir_module", &module).ok() ||
          !tensorflow::GetNodeAttr(node->attrs(), "metadata", &metadata).ok() ||
          !parsed.ParseFromString(metadata)) {
        continue;
      }
      const int all =
          std::max(1, parsed.num_replicas()) * std::max(1, parsed.num_cores_per_replica());
      const std::set<std::string> cores = CoresOf(*node);
      if (cores.empty() || static_cast<int>(cores.size()) >= all) continue;
      const std::string& first_core = *cores.begin();
      const auto fingerprint = tensorflow::Fingerprint128(absl::StrCat(module, metadata));
      const std::string what = absl::StrCat(fingerprint.low64, ":", fingerprint.high64);
      const int number = seen[{what, first_core}]++;
      node->AddAttr(kLaunchGroup, absl::StrCat(what, ":", number));
      node->AddAttr(kLaunchMember, first_core);
    }
    return absl::OkStatus();
  }
};

REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, kLaunchGroupsPhase,
                      LaunchGroups);

}  // namespace
}  // namespace tf_tpu_ext
