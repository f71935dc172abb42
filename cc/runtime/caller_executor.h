// An executor of TensorFlow that starts a function's programs on the thread that called it.
//
// TensorFlow hands every function to a thread of the host and wakes the caller when it has ended,
// which takes longer than a short step. A function whose host part only brings arguments to
// programs (cc/passes/launch_from_host.h) needs no other thread for that.
#ifndef TF_TPU_EXT_CC_RUNTIME_CALLER_EXECUTOR_H_
#define TF_TPU_EXT_CC_RUNTIME_CALLER_EXECUTOR_H_

#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// The executor's type, an attribute of calls of functions. It runs graphs that are not suited as
// TensorFlow's own executor does.
inline constexpr char kCallerExecutor[] = "TF_TPU_EXT_CALLER";

enum class CallersPart {
  kNothing,  // other ops than such that start programs and bring their arguments
  kStart,    // what can be done before a program has ended
  // Also what comes after the programs, which the thread does on which the last one has ended: no
  // program is compiled or started there.
  kWhole,
};

// What of the graph, the part of a function for one device, the thread may do that called it.
CallersPart PartOfCaller(const tensorflow::Graph& graph);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_CALLER_EXECUTOR_H_
