// Which functions of a module call which.
#ifndef TF_TPU_EXT_CC_COMPILER_LOWER_MODULE_CALLS_H_
#define TF_TPU_EXT_CC_COMPILER_LOWER_MODULE_CALLS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tf_tpu_ext {

// An error if a function of the module, which is MLIR's text, calls itself, through others or not.
// MLIR's passes would inline without end, and the process die of its stack.
absl::Status CheckNoRecursion(absl::string_view module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_LOWER_MODULE_CALLS_H_
