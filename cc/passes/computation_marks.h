// How a graph marks what belongs to a TPU computation, before the bridge.
#ifndef TF_TPU_EXT_CC_PASSES_COMPUTATION_MARKS_H_
#define TF_TPU_EXT_CC_PASSES_COMPUTATION_MARKS_H_

#include <string>

#include "tensorflow/core/framework/node_def.pb.h"

namespace tf_tpu_ext {

// The computation that a node belongs to; empty if none.
std::string MarkedComputation(const tensorflow::NodeDef& node);

// Ops around computations, which have no mark.
bool IsReplicatedInput(const std::string& op);
bool IsReplicatedOutput(const std::string& op);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_COMPUTATION_MARKS_H_
