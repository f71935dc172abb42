// Which instructions do nothing but compute their value.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_PURITY_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_PURITY_H_

#include "absl/functional/function_ref.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace tf_tpu_ext {

enum class Purity {
  kPure,    // the value depends on the operands only
  kRandom,  // the value is new each time
  kImpure,  // affects the host or other replicas, or depends on where it runs
};

// The purity of the instruction itself, regardless of what it calls. Anything that is not known to
// be pure is impure.
Purity PurityOf(const xla::HloInstruction& instruction);

// Whether the condition holds for the instruction and everything it calls.
bool HoldsWithCallees(const xla::HloInstruction& instruction,
                      absl::FunctionRef<bool(const xla::HloInstruction&)> condition);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_PURITY_H_
