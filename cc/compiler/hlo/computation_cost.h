// What it costs to compute a program.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_COMPUTATION_COST_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_COMPUTATION_COST_H_

#include <cstdint>

#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// In elements of the arrays that the program computes: those of large arrays, which no cache holds,
// count half as much again, and a loop, of whose rounds nothing is known here, kLoopRounds times.
// What the result does not need costs nothing; nor do products, convolutions and custom calls here,
// which share their work out to threads that are free.
struct ComputationCost {
  static constexpr int64_t kLoopRounds = 16;

  int64_t all = 0;
  int64_t in_loops = 0;
};
ComputationCost CostOf(const xla::HloModule& module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_COMPUTATION_COST_H_
