// Puts the host transfers of a program in order.
#ifndef TF_TPU_EXT_CC_COMPILER_LOWER_HOST_TRANSFER_ORDER_H_
#define TF_TPU_EXT_CC_COMPILER_LOWER_HOST_TRANSFER_ORDER_H_

#include <string>

#include "absl/status/status.h"
#include "tensorflow/core/framework/function.h"

namespace tf_tpu_ext {

// Turns the bridge's host computations into our own op and chains every op that talks to the host,
// and every loop, branch or call that holds one, by tf2xla's token attributes: XLA then runs them
// in program order, within and across loop iterations. Only functions that `entry` reaches matter.
absl::Status OrderHostTransfers(const std::string& entry,
                                tensorflow::FunctionLibraryDefinition* library,
                                bool* has_host_transfers);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_LOWER_HOST_TRANSFER_ORDER_H_
