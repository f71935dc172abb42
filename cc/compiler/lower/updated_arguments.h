// Finds the arguments of a program that are variables to which it assigns.
#ifndef TF_TPU_EXT_CC_COMPILER_LOWER_UPDATED_ARGUMENTS_H_
#define TF_TPU_EXT_CC_COMPILER_LOWER_UPDATED_ARGUMENTS_H_

#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "cc/program/value_numbers.h"

namespace tf_tpu_ext {

// The variables and their new values, as recorded by the bridge in the text of a module
// (tf.aliasing_output). Sorted by argument.
std::vector<std::pair<ArgumentNumber, OutputNumber>> UpdatedArguments(absl::string_view module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_LOWER_UPDATED_ARGUMENTS_H_
