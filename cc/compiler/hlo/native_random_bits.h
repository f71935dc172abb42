// Generates random bits in native code.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_NATIVE_RANDOM_BITS_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_NATIVE_RANDOM_BITS_H_

#include "absl/status/status.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// Replaces the generation of random arrays with a call (see random_bits.h) that produces the same
// bits as XLA's code in a seventh of the time. Not for programs whose arrays are divided between
// cores.
absl::Status MakeRandomBitsNatively(xla::HloModule* module);

// Whether the instruction is such a call. It can't fail.
bool IsNativeRandomBits(const xla::HloInstruction& instruction);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_NATIVE_RANDOM_BITS_H_
