// Products as a TPU computes them.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_MATMUL_PRECISION_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_MATMUL_PRECISION_H_

#include "absl/status/status.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// Rounds the float32 operands of products and convolutions to bfloat16, as a TPU does; products are
// summed in float32. The precision of an operand counts: DEFAULT rounds it, HIGH splits it into two
// bfloat16 (three products instead of one), HIGHEST leaves it as it is. Calls of TensorFlow's
// convolutions have no precision in the module: `kernels_too` says whether theirs is DEFAULT.
absl::Status RoundProducts(bool kernels_too, xla::HloModule* module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_MATMUL_PRECISION_H_
