// Makes a part of a session's graph a graph of its own, and puts what the bridge made of it back.
#ifndef TF_TPU_EXT_CC_PASSES_PART_GRAPH_H_
#define TF_TPU_EXT_CC_PASSES_PART_GRAPH_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/passes/computation_parts.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// What other ops take from a computation: one of its outputs, or only the order.
struct Leaving {
  // The op that stands for them in the part's graph.
  std::string sink;
  // Each with the input that takes it; Graph::kControlSlot if it only follows.
  std::vector<std::pair<tensorflow::Node*, int>> takers;
};

struct PartGraph {
  // Computations, what they depend on, and sinks. The same for the same part, whatever else is in
  // the whole graph.
  std::unique_ptr<tensorflow::Graph> graph;
  // Nodes of the whole graph by their names here: passes number the ops that they add to that
  // graph.
  absl::flat_hash_map<std::string, tensorflow::Node*> ancestors;
  std::vector<Leaving> leaving;
};

absl::StatusOr<PartGraph> MakePartGraph(const ComputationPart& part,
                                        const tensorflow::Graph& whole);

// What the bridge has made of a part's graph: sinks, and everything that is not an ancestor.
// Returns nothing if it has changed an ancestor that must not run twice.
std::optional<tensorflow::GraphDef> MadeByBridge(const PartGraph& part,
                                                 const tensorflow::Graph& bridged);

// Puts what the bridge made into the whole graph, in place of the computations.
absl::Status ReplaceComputations(const ComputationPart& part, const PartGraph& part_graph,
                                 const tensorflow::GraphDef& made, tensorflow::Graph* whole);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_PART_GRAPH_H_
