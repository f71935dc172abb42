// Which instructions do no more than compute their value.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_PURITY_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_PURITY_H_

#include "absl/functional/function_ref.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace tf_tpu_ext {

enum class Purity {
  kPure,    // its value depends on its operands alone
  kRandom,  // its value is new each time
  kImpure,  // it acts on more than its replica, or on the host, or sees where it runs
};

// Of the instruction itself, whatever it calls. What is not known to be pure is impure.
Purity PurityOf(const xla::HloInstruction& instruction);

// Whether the condition holds for the instruction, and for all that it calls.
bool HoldsWithCallees(const xla::HloInstruction& instruction,
                      absl::FunctionRef<bool(const xla::HloInstruction&)> condition);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_PURITY_H_
