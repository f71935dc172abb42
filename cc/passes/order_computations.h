// Makes the bridge keep the order of a graph's TPU computations.
//
// The bridge gathers the ops of each computation, taking the computations in no particular order,
// and puts them where the last of them is. Where ops of several computations alternate, one that
// has to follow another may end up before it, and updates of the same variable by several
// computations of a tf.function are lost. In graphs of sessions, the bridge drops the control
// inputs of all ops of a computation except the first.
//
// Neither happens if every op of a computation follows a gate: an op without effect that has all
// control inputs of the computation, and follows the last ops of those that must run before it.
#ifndef TF_TPU_EXT_CC_PASSES_ORDER_COMPUTATIONS_H_
#define TF_TPU_EXT_CC_PASSES_ORDER_COMPUTATIONS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// What the order depends on: which computation a node belongs to, and the nodes that it follows.
struct OrderedNode {
  std::string computation;  // empty if it belongs to none
  std::vector<int> data_inputs;
  std::vector<int> control_inputs;
};

struct Gate {
  std::string computation;
  std::vector<int> after;   // the nodes that it follows
  std::vector<int> before;  // the nodes that follow it, all of the computation
};

// The gates that nodes need, at most one for each computation. A computation that depends on a node
// in a cycle gets none.
std::vector<Gate> GatesOfComputations(absl::Span<const OrderedNode> nodes);

// Adds the gates to the graph and to the functions of the library. A single computation needs one
// only in a session's graph. Skips graphs and functions with TensorFlow 1 loops outside
// computations: no edge may lead into such a loop.
absl::Status OrderComputations(bool of_session, tensorflow::Graph* graph,
                               tensorflow::FunctionLibraryDefinition* library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_ORDER_COMPUTATIONS_H_
