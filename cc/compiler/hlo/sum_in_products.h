// Turns sums of matrix products into single products.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_SUM_IN_PRODUCTS_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_SUM_IN_PRODUCTS_H_

#include "absl/status/status.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// Where a batch of products is computed and then summed over the batch, computes one product that
// also sums over the batch. The work is the same, but needs no memory for each product. The
// gradient of weights that a BatchMatMulV2 shares between examples, as in Keras' EinsumDense and
// MultiHeadAttention, is such a sum. XLA does this for accelerators, but not for CPUs.
absl::Status SumInProducts(xla::HloModule* module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_SUM_IN_PRODUCTS_H_
