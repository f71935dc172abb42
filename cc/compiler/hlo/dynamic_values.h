// Values of dynamic size inside a computation.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_DYNAMIC_VALUES_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_DYNAMIC_VALUES_H_

#include "xla/hlo/ir/hlo_instruction.h"

namespace tf_tpu_ext {

// The true size of a dynamic dimension, an int32.
xla::HloInstruction* SizeOf(xla::HloInstruction* array, int dimension);

// The array with that dimension at its bound, padding included.
xla::HloInstruction* AtBound(xla::HloInstruction* array, int dimension);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_DYNAMIC_VALUES_H_
