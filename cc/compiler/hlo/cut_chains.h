// Ends XLA's kernels within long chains of ops.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_CUT_CHAINS_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_CUT_CHAINS_H_

#include <vector>

#include "absl/status/status.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// Whether a size is known only at run time. Such modules can't be cut.
bool HasDynamicShapes(const xla::HloModule& module);

// The entry computation and everything it calls, including loops and branches. Bodies of reductions
// and sorts are part of kernels: only computations that run op by op can be cut.
std::vector<xla::HloComputation*> ComputationsOfOps(xla::HloModule* module);

// Adds a call that returns the instruction's result, and has no users yet.
xla::HloInstruction* AddCutOf(xla::HloInstruction* instruction);

// Cuts each chain of more than `max_length` ops that XLA would turn into one kernel. A kernel's
// compile time grows faster than its length, and XLA traverses it recursively: 100,000 ops crash
// the process. A cut (cc/program/chain_cut.h) costs one or two microseconds at run time.
//
// Modules with sizes that are known only at run time are left unchanged.
absl::Status CutChains(int max_length, xla::HloModule* module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_CUT_CHAINS_H_
