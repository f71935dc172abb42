// Finds the arguments of a program that are padded, and those that hold their true sizes.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_PADDED_ARGUMENTS_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_PADDED_ARGUMENTS_H_

#include <vector>

#include "cc/base/number.h"
#include "cc/program/padded_argument.h"
#include "cc/program/value_numbers.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// The arguments whose dimensions the entry computation sets to sizes that are themselves arguments,
// as a program does if its inputs were padded on the host. `parameter_arguments` holds the argument
// of each parameter. Sorted by argument.
std::vector<PaddedArgument> PaddedArguments(
    const xla::HloModule& module,
    const ByNumber<ParameterNumber, ArgumentNumber>& parameter_arguments);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_PADDED_ARGUMENTS_H_
