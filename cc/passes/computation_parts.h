// Divides a session's graph into what the bridge needs for each TPU computation, and the rest.
#ifndef TF_TPU_EXT_CC_PASSES_COMPUTATION_PARTS_H_
#define TF_TPU_EXT_CC_PASSES_COMPUTATION_PARTS_H_

#include <vector>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// One computation, or several that depend on each other.
struct ComputationPart {
  // Nodes that the bridge replaces, in the order of the graph.
  std::vector<tensorflow::Node*> computations;
  // What they depend on, in the same order: host ops, which stay.
  std::vector<tensorflow::Node*> ancestors;
};

// The parts of a graph. Empty if it has to be bridged as a whole: because of computations in
// functions or in TensorFlow 1 loops, or of anything else that is marked for a TPU in another way.
std::vector<ComputationPart> DivideIntoParts(const tensorflow::Graph& graph,
                                             const tensorflow::FunctionLibraryDefinition& library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_COMPUTATION_PARTS_H_
