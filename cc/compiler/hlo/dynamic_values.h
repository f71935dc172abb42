// Values of dynamic size inside a computation.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_DYNAMIC_VALUES_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_DYNAMIC_VALUES_H_

#include "xla/hlo/ir/hlo_instruction.h"

namespace tf_tpu_ext {

// The actual size of a dynamic dimension, as an int32.
xla::HloInstruction* SizeOf(xla::HloInstruction* array, int dimension);

// The array with this dimension at its bound, including the padding.
xla::HloInstruction* AtBound(xla::HloInstruction* array, int dimension);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_DYNAMIC_VALUES_H_
