// Divides the graph of a session into what the bridge needs for one TPU computation, and the rest.
#ifndef TF_TPU_EXT_CC_PASSES_COMPUTATION_PARTS_H_
#define TF_TPU_EXT_CC_PASSES_COMPUTATION_PARTS_H_

#include <vector>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// One computation, or several of which one depends on another.
struct ComputationPart {
  // Nodes that the bridge replaces, in the order of the graph.
  std::vector<tensorflow::Node*> computations;
  // What they depend on, in the same order: ops of the host, which stay.
  std::vector<tensorflow::Node*> ancestors;
};

// The parts of a graph. None if it has to be bridged as a whole: computations in functions or in
// loops of TensorFlow 1, and whatever else is marked for a TPU in another way.
std::vector<ComputationPart> DivideIntoParts(const tensorflow::Graph& graph,
                                             const tensorflow::FunctionLibraryDefinition& library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_COMPUTATION_PARTS_H_
