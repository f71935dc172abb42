// Computes matrix products with a TPU's precision.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_MATMUL_PRECISION_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_MATMUL_PRECISION_H_

#include "absl/status/status.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// Rounds the float32 operands of matrix products and convolutions to bfloat16, as a TPU does. Sums
// are in float32. Each operand's precision decides: DEFAULT rounds it, HIGH splits it into two
// bfloat16 values (three products instead of one), HIGHEST leaves it alone. Calls to TensorFlow's
// convolution kernels have no precision in the module, so `kernels_too` says whether theirs is
// DEFAULT.
absl::Status RoundProducts(bool kernels_too, xla::HloModule* module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_MATMUL_PRECISION_H_
