// Ends XLA's kernels before large sums.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_CUT_SUMS_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_CUT_SUMS_H_

#include "absl/status/status.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// XLA leaves a large sum to a library (cc/abi/xla/library_sums.h), unless what is added up is a
// product or a conversion. It then computes both in one kernel, which for sums over several
// dimensions adds one number at a time. Batch normalization is full of such sums: the variance, and
// the gradient of the scale. A cut (cc/program/chain_cut.h) between the two leaves the sum to the
// library, which takes a half to a sixth of the time, the product included.
absl::Status CutSums(xla::HloModule* module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_CUT_SUMS_H_
