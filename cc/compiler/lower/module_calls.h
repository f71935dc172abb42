// Which functions of a module call which.
#ifndef TF_TPU_EXT_CC_COMPILER_LOWER_MODULE_CALLS_H_
#define TF_TPU_EXT_CC_COMPILER_LOWER_MODULE_CALLS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tf_tpu_ext {

// Returns an error if a function of the module, in MLIR's textual form, calls itself directly or
// indirectly. MLIR's passes would inline it forever, until the process overflows its stack.
absl::Status CheckNoRecursion(absl::string_view module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_LOWER_MODULE_CALLS_H_
