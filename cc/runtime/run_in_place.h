// Runs programs that write the new values of variables over the old ones.
#ifndef TF_TPU_EXT_CC_RUNTIME_RUN_IN_PLACE_H_
#define TF_TPU_EXT_CC_RUNTIME_RUN_IN_PLACE_H_

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cc/base/core_context.h"
#include "cc/runtime/program.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/refcount.h"

namespace tf_tpu_ext {

// The variables among the arguments of an execute op, by argument number; null elsewhere.
using ArgumentVariables = std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>>;

// Whether the variables that the program updates are there, and worth their locks. `updated` has
// the number of an argument and of an output for each; `owners` the variables of each replica.
bool MayRunInPlace(absl::Span<const std::pair<int, int>> updated,
                   absl::Span<const tensorflow::Tensor> arguments,
                   absl::Span<const ArgumentVariables* const> owners);

// Runs a program that was compiled to overwrite `updated`, under the locks of these variables, and
// returns when it has ended. Overwritten is what only the variables and `arguments` refer to. The
// variables of all owners get the new values, or keep theirs if the run fails before it has begun;
// the program must be one that can't fail later.
absl::Status RunInPlace(Program& program, const CoreContext& core,
                        absl::Span<const std::pair<int, int>> updated,
                        absl::Span<const ArgumentVariables* const> owners,
                        std::vector<tensorflow::Tensor> arguments,
                        std::vector<tensorflow::Tensor>* outputs);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_RUN_IN_PLACE_H_
