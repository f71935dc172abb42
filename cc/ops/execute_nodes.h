#ifndef TF_TPU_EXT_CC_OPS_EXECUTE_NODES_H_
#define TF_TPU_EXT_CC_OPS_EXECUTE_NODES_H_

#include <string>

#include "absl/strings/match.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// Whether the node runs a compiled program, with or without variables to update.
inline bool IsExecute(const tensorflow::Node& node) {
  return absl::StartsWith(node.type_string(), "TPUExecute");
}

// Whether ops of this type are the host's ends of a program's transfers.
inline bool IsHostTransfer(const std::string& op) {
  return absl::StartsWith(op, "_XlaRecvAtHost") || absl::StartsWith(op, "_XlaSendFromHost");
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_OPS_EXECUTE_NODES_H_
