// Sums of products, as one product.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_SUM_IN_PRODUCTS_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_SUM_IN_PRODUCTS_H_

#include "absl/status/status.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// Where a batch of products is made and then summed over the batch, makes one product that sums
// over the batch as well: the same work, without memory for each of them. The gradient of weights
// that a BatchMatMulV2 shares between examples, as in Keras' EinsumDense and MultiHeadAttention, is
// such a sum. XLA does so for accelerators, but not for CPUs.
absl::Status SumInProducts(xla::HloModule* module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_SUM_IN_PRODUCTS_H_
