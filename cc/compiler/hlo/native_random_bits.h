// Random bits by native code.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_NATIVE_RANDOM_BITS_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_NATIVE_RANDOM_BITS_H_

#include "absl/status/status.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// Has arrays of random bits made by a call (see random_bits.h) that makes the same bits as XLA's
// code, in a seventh of the time. Programs whose arrays are divided between cores must be left
// alone.
absl::Status MakeRandomBitsNatively(xla::HloModule* module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_NATIVE_RANDOM_BITS_H_
