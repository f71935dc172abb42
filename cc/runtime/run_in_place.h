// Runs programs that write new values of variables over the old ones.
#ifndef TF_TPU_EXT_CC_RUNTIME_RUN_IN_PLACE_H_
#define TF_TPU_EXT_CC_RUNTIME_RUN_IN_PLACE_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cc/base/core_context.h"
#include "cc/base/number.h"
#include "cc/program/value_numbers.h"
#include "cc/runtime/program.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/platform/refcount.h"

namespace tf_tpu_ext {

// The variables among the arguments of an execute op. Null for other arguments.
using ArgumentVariables = ByNumber<ArgumentNumber, tensorflow::core::RefCountPtr<tensorflow::Var>>;
// Variables to which a program assigns, each with the output that is its new value.
using UpdatedVariables = absl::Span<const std::pair<ArgumentNumber, OutputNumber>>;

// Whether the variables that the program updates exist and are worth locking. `owners` are the
// variables of each replica.
bool MayRunInPlace(UpdatedVariables updated, const Arguments& arguments,
                   absl::Span<const ArgumentVariables* const> owners);

// Runs a program that was compiled to overwrite `updated` while holding the locks of these
// variables. Returns when it has finished. Overwrites only buffers to which nothing but the
// variables and `arguments` refers. The variables of all owners get the new values, or keep theirs
// if the run fails before it has begun. After that, the program must be unable to fail. This sets
// in `options` how many threads it uses and what it overwrites.
absl::Status RunInPlace(Program& program, const CoreContext& core, UpdatedVariables updated,
                        absl::Span<const ArgumentVariables* const> owners, Arguments arguments,
                        RunOptions options, Outputs* outputs);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_RUN_IN_PLACE_H_
