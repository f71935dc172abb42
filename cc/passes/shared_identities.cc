// The bridge for session graphs rejects an Identity on the host that feeds two TPU computations, as
// in a graph that trains and evaluates with one `tf.identity(learning_rate)`. This pass gives every
// computation an Identity of its own.
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Edge;
using tensorflow::Graph;
using tensorflow::Node;

// Before TensorFlow's own passes of the phase, the bridge among them.
constexpr int kIdentitiesPhase = -2;
constexpr char kComputation[] = "_tpu_replicate";

bool LeadsIntoComputation(const Node& node) {
  return node.type_string() == "Identity" || node.type_string() == "TPUReplicatedInput" ||
         node.type_string() == "TPUPartitionedInput";
}

class SharedIdentities : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.is_function_graph || options.graph == nullptr || *options.graph == nullptr) {
      return absl::OkStatus();
    }
    Graph* graph = options.graph->get();
    // The computation that each node leads into; a node that leads into several is copied until
    // none does.
    absl::flat_hash_map<const Node*, std::string> leads_into;
    std::vector<Node*> consumers_first;
    GetPostOrder(*graph, &consumers_first);
    for (Node* node : consumers_first) {
      const tensorflow::AttrValue* computation = node->attrs().FindByString(kComputation);
      if (computation != nullptr) {
        leads_into[node] = computation->s();
      } else if (LeadsIntoComputation(*node)) {
        Divide(graph, node, &leads_into);
      }
    }
    return absl::OkStatus();
  }

 private:
  static void Divide(Graph* graph, Node* node,
                     absl::flat_hash_map<const Node*, std::string>* leads_into) {
    // Ordered, so that the same graph always gives the same result.
    std::map<std::string, std::vector<const Edge*>> edges;
    for (const Edge* edge : node->out_edges()) {
      if (edge->IsControlEdge()) continue;
      const auto found = leads_into->find(edge->dst());
      if (found != leads_into->end()) edges[found->second].push_back(edge);
    }
    if (edges.empty()) return;
    // The first computation keeps the node.
    (*leads_into)[node] = edges.begin()->first;
    if (node->type_string() != "Identity") return;
    for (auto it = std::next(edges.begin()); it != edges.end(); ++it) {
      Node* copy = graph->CopyNode(node);
      copy->set_name(graph->NewName(node->name()));
      for (const Edge* edge : node->in_edges()) {
        graph->AddEdge(edge->src(), edge->src_output(), copy, edge->dst_input());
      }
      for (const Edge* edge : it->second) {
        Node* user = edge->dst();
        const int input = edge->dst_input();
        graph->RemoveEdge(edge);
        graph->AddEdge(copy, 0, user, input);
      }
      (*leads_into)[copy] = it->first;
    }
  }
};

REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, kIdentitiesPhase,
                      SharedIdentities);

}  // namespace
}  // namespace tf_tpu_ext
