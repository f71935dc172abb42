// A TensorFlow executor that starts a function's programs on the thread that called the function.
//
// TensorFlow passes every function to a host thread and wakes the caller when it has finished,
// which takes longer than a short step. A function whose host part only passes arguments to
// programs (cc/passes/launch_from_host.h) does not need another thread.
#ifndef TF_TPU_EXT_CC_RUNTIME_CALLER_EXECUTOR_H_
#define TF_TPU_EXT_CC_RUNTIME_CALLER_EXECUTOR_H_

#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// The executor's type, an attribute of function calls. It runs unsuitable graphs in the same way as
// TensorFlow's own executor.
inline constexpr char kCallerExecutor[] = "TF_TPU_EXT_CALLER";

enum class CallersPart {
  kNothing,  // there are ops other than those that start programs and pass their arguments
  kStart,    // everything that can be done before a program has finished
  // Also what follows the programs, on the thread on which the last program finishes. No program is
  // compiled or started there.
  kWhole,
};

// The part of the graph that the calling thread may run. The graph is the part of a function for
// one device.
CallersPart PartOfCaller(const tensorflow::Graph& graph);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_CALLER_EXECUTOR_H_
