// How the values that enter and leave a program are numbered.
//
// A step has arguments and outputs, which are those of its execute op. The executable takes
// parameters, which are some of the arguments in an order of its own, and computes results: the
// outputs whose value the compiler did not know, followed by the true sizes of outputs with dynamic
// shapes.
#ifndef TF_TPU_EXT_CC_PROGRAM_VALUE_NUMBERS_H_
#define TF_TPU_EXT_CC_PROGRAM_VALUE_NUMBERS_H_

#include "cc/base/number.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

using ArgumentNumber = Number<class ArgumentTag>;
using OutputNumber = Number<class OutputTag>;
using ParameterNumber = Number<class ParameterTag>;
using ResultNumber = Number<class ResultTag>;

using Arguments = ByNumber<ArgumentNumber, tensorflow::Tensor>;
using Outputs = ByNumber<OutputNumber, tensorflow::Tensor>;

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_VALUE_NUMBERS_H_
