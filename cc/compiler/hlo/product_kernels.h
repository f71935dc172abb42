// Has TensorFlow's kernels compute products of bfloat16 matrices.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_PRODUCT_KERNELS_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_PRODUCT_KERNELS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// Whether a kernel multiplies bfloat16 faster than float32 on this machine. XLA converts the
// operands, so its products are as fast as those of float32; oneDNN uses the processor's
// instructions for bfloat16, if it has any. The first call measures it, in a few milliseconds.
bool KernelsMultiplyBFloat16Fast();

// The number of products that UseKernelsForProducts replaces.
int64_t CountProductsForKernels(const xla::HloModule& module);

// Replaces products of bfloat16, with any dimensions, by calls of a kernel
// (cc/program/kernel_call.h) where there is more to compute than a call costs. Like XLA's, the
// kernel adds in float32.
absl::Status UseKernelsForProducts(xla::HloModule* module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_PRODUCT_KERNELS_H_
