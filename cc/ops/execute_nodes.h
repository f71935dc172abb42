#ifndef TF_TPU_EXT_CC_OPS_EXECUTE_NODES_H_
#define TF_TPU_EXT_CC_OPS_EXECUTE_NODES_H_

#include "absl/strings/match.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// Whether the node runs a compiled program, with or without variables to update.
inline bool IsExecute(const tensorflow::Node& node) {
  return absl::StartsWith(node.type_string(), "TPUExecute");
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_OPS_EXECUTE_NODES_H_
