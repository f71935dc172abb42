// Windows with padding "SAME" over dimensions whose size is known only at run time.
#ifndef TF_TPU_EXT_CC_ABI_XLA_DYNAMIC_WINDOWS_H_
#define TF_TPU_EXT_CC_ABI_XLA_DYNAMIC_WINDOWS_H_

#include "absl/status/status.h"
#include "cc/abi/xla/minor.h"
#include "xla/hlo/ir/hlo_module.h"

#if TF_TPU_EXT_TENSORFLOW_MINOR < 20
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/hlo/transforms/simplifiers/flatten_call_graph.h"
#include "xla/service/call_inliner.h"
#include "xla/service/dynamic_padder.h"
#include "xla/tsl/platform/errors.h"
#endif

namespace tf_tpu_ext {

#if TF_TPU_EXT_TENSORFLOW_MINOR < 20
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
#endif

// Makes a module compilable. Before 2.20, XLA forgets that its DynamicPadder has replaced the
// custom calls that such windows are at first: compiling their reducers would end the process. If
// the padder has run before, the compiler's copy of the module never has such calls.
inline absl::Status ReplaceDynamicWindows([[maybe_unused]] xla::HloModule* module) {
#if TF_TPU_EXT_TENSORFLOW_MINOR < 20
  if (!HasDynamicWindows(*module)) return absl::OkStatus();
  // The padder takes no calls, and no computation that has two callers.
  TF_RETURN_IF_ERROR(xla::CallInliner().Run(module, /*execution_threads=*/{}).status());
  TF_RETURN_IF_ERROR(xla::FlattenCallGraph().Run(module, /*execution_threads=*/{}).status());
  return xla::DynamicPadder().Run(module, /*execution_threads=*/{}).status();
#else
  return absl::OkStatus();
#endif
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_ABI_XLA_DYNAMIC_WINDOWS_H_
