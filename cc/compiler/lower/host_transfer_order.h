// Puts the host transfers of a program in order.
#ifndef TF_TPU_EXT_CC_COMPILER_LOWER_HOST_TRANSFER_ORDER_H_
#define TF_TPU_EXT_CC_COMPILER_LOWER_HOST_TRANSFER_ORDER_H_

#include <string>

#include "absl/status/status.h"
#include "tensorflow/core/framework/function.h"

namespace tf_tpu_ext {

// Turns the bridge's host computations into our own op. Also chains all ops that talk to the host,
// and all loops, branches and calls that contain one, through tf2xla's token attributes, so that
// XLA runs them in program order, within and across loop iterations. Only considers functions that
// `entry` reaches.
absl::Status OrderHostTransfers(const std::string& entry,
                                tensorflow::FunctionLibraryDefinition* library,
                                bool* has_host_transfers);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_LOWER_HOST_TRANSFER_ORDER_H_
