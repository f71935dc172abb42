// Estimates what a program costs to compute.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_COMPUTATION_COST_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_COMPUTATION_COST_H_

#include <cstdint>

#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// The unit is elements of the arrays that the program computes. Elements of arrays too large for
// the cache count one and a half times. A loop counts kLoopRounds times, because its number of
// iterations is unknown here. Anything that the result does not need costs nothing. Neither do
// matrix products, convolutions and custom calls, which share their work with idle threads.
struct ComputationCost {
  static constexpr int64_t kLoopRounds = 16;

  int64_t all = 0;
  int64_t in_loops = 0;
};
ComputationCost CostOf(const xla::HloModule& module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_COMPUTATION_COST_H_
