// Which arguments of a program are variables that it gives new values.
#ifndef TF_TPU_EXT_CC_COMPILER_LOWER_UPDATED_ARGUMENTS_H_
#define TF_TPU_EXT_CC_COMPILER_LOWER_UPDATED_ARGUMENTS_H_

#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "cc/program/value_numbers.h"

namespace tf_tpu_ext {

// The variables, each with its new value, as the bridge notes them in the text of a module
// (tf.aliasing_output), in the order of the arguments.
std::vector<std::pair<ArgumentNumber, OutputNumber>> UpdatedArguments(absl::string_view module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_LOWER_UPDATED_ARGUMENTS_H_
