// Computes the new values of many small variables together.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_JOIN_UPDATES_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_JOIN_UPDATES_H_

#include "absl/status/status.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// XLA compiles one to three kernels for the optimizer's update of each variable, which in a model
// with many layers is a third to a half of all kernels. Elementwise code on small arrays that does
// the same to each of them, and from which only results of the program or of a loop's iteration
// follow, is computed once, on the arrays packed into one (cc/program/pack.h): what XLA calls
// horizontal fusion, and does for GPUs.
absl::Status JoinUpdates(xla::HloModule* module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_JOIN_UPDATES_H_
