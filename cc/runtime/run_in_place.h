// Runs programs that write the new values of variables over the old ones.
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

// The variables among the arguments of an execute op; null elsewhere.
using ArgumentVariables = ByNumber<ArgumentNumber, tensorflow::core::RefCountPtr<tensorflow::Var>>;
// Variables that a program gives new values, each with its output.
using UpdatedVariables = absl::Span<const std::pair<ArgumentNumber, OutputNumber>>;

// Whether the variables that the program updates are there, and worth their locks. `owners` are the
// variables of each replica.
bool MayRunInPlace(UpdatedVariables updated, const Arguments& arguments,
                   absl::Span<const ArgumentVariables* const> owners);

// Runs a program that was compiled to overwrite `updated`, under the locks of these variables, and
// returns when it has ended. Overwritten is what only the variables and `arguments` refer to. The
// variables of all owners get the new values, or keep theirs if the run fails before it has begun;
// the program must be one that can't fail later. On how many threads it runs, and what it
// overwrites, is set in `options` here.
absl::Status RunInPlace(Program& program, const CoreContext& core, UpdatedVariables updated,
                        absl::Span<const ArgumentVariables* const> owners, Arguments arguments,
                        RunOptions options, Outputs* outputs);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_RUN_IN_PLACE_H_
