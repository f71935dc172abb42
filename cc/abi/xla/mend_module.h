// What a module needs before XLA compiles it, because of errors in the XLA of TensorFlow 2.19.
#ifndef TF_TPU_EXT_CC_ABI_XLA_MEND_MODULE_H_
#define TF_TPU_EXT_CC_ABI_XLA_MEND_MODULE_H_

#include "absl/status/statusor.h"
#include "cc/abi/xla/minor.h"
#include "xla/hlo/ir/hlo_module.h"

#if TF_TPU_EXT_TENSORFLOW_MINOR < 20
#include <cstdint>
#include <random>

#include "absl/synchronization/mutex.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/hlo/transforms/expanders/rng_expander.h"
#include "xla/hlo/transforms/simplifiers/flatten_call_graph.h"
#include "xla/literal_util.h"
#include "xla/service/call_inliner.h"
#include "xla/service/dynamic_padder.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"
#endif

namespace tf_tpu_ext {

#if TF_TPU_EXT_TENSORFLOW_MINOR < 20

// Whether there are windows with padding "SAME" over dimensions whose size is known only at run
// time: they are custom calls at first.
inline bool HasDynamicWindows(const xla::HloModule& module) {
  for (const xla::HloComputation* computation : module.computations()) {
    for (const xla::HloInstruction* instruction : computation->instructions()) {
      if (instruction->opcode() == xla::HloOpcode::kCustomCall &&
          !instruction->called_computations().empty()) {
        return true;
      }
    }
  }
  return false;
}

// XLA forgets that its DynamicPadder has replaced these custom calls: compiling their reducers
// would end the process. If the padder has run before, the compiler's copy never has such calls.
inline absl::StatusOr<bool> ReplaceDynamicWindows(xla::HloModule* module) {
  if (!HasDynamicWindows(*module)) return false;
  // The padder takes no calls, and no computation that has two callers.
  TF_RETURN_IF_ERROR(xla::CallInliner().Run(module, /*execution_threads=*/{}).status());
  TF_RETURN_IF_ERROR(xla::FlattenCallGraph().Run(module, /*execution_threads=*/{}).status());
  return xla::DynamicPadder().Run(module, /*execution_threads=*/{});
}

inline uint64_t NextRandomKey() {
  static auto* const mutex = new absl::Mutex;
  static auto* const keys = new std::mt19937_64;
  absl::MutexLock lock(mutex);
  return (*keys)();
}

// XLA gives all random ops the key 0: those of one shape would draw the same numbers.
inline absl::StatusOr<bool> GiveRandomOpsKeys(xla::HloModule* module) {
  TF_ASSIGN_OR_RETURN(const bool expanded,
                      xla::RngExpander().Run(module, /*execution_threads=*/{}));
  if (!expanded) return false;
  for (xla::HloComputation* computation : module->computations()) {
    for (xla::HloInstruction* call : computation->MakeInstructionPostOrder()) {
      if (call->opcode() != xla::HloOpcode::kCall || call->operand_count() < 2 ||
          call->operand(1)->opcode() != xla::HloOpcode::kRngGetAndUpdateState) {
        continue;
      }
      xla::HloInstruction* const key = computation->AddInstruction(
          xla::HloInstruction::CreateConstant(xla::LiteralUtil::CreateR0(NextRandomKey())));
      TF_RETURN_IF_ERROR(call->ReplaceOperandWith(0, key));
    }
  }
  return true;
}

#endif

// Returns whether the module had to be changed.
inline absl::StatusOr<bool> MendModule([[maybe_unused]] xla::HloModule* module) {
#if TF_TPU_EXT_TENSORFLOW_MINOR < 20
  TF_ASSIGN_OR_RETURN(const bool random, GiveRandomOpsKeys(module));
  TF_ASSIGN_OR_RETURN(const bool windows, ReplaceDynamicWindows(module));
  return random || windows;
#else
  return false;
#endif
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_ABI_XLA_MEND_MODULE_H_
