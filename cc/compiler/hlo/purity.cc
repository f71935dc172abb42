#include "cc/compiler/hlo/purity.h"

#include "absl/algorithm/container.h"
#include "cc/abi/xla/hlo_opcode.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace tf_tpu_ext {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

Purity PurityOf(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kBatchNormGrad:
    case HloOpcode::kBatchNormInference:
    case HloOpcode::kBatchNormTraining:
    case HloOpcode::kBitcast:
    case HloOpcode::kBitcastConvert:
    case HloOpcode::kBroadcast:
    case HloOpcode::kCall:
    case HloOpcode::kCholesky:
    case HloOpcode::kConcatenate:
    case HloOpcode::kConditional:
    case HloOpcode::kConstant:
    case HloOpcode::kConvolution:
    case HloOpcode::kCopy:
    case HloOpcode::kDot:
    case HloOpcode::kDynamicReshape:
    case HloOpcode::kDynamicSlice:
    case HloOpcode::kDynamicUpdateSlice:
    case HloOpcode::kFft:
    case HloOpcode::kFusion:
    case HloOpcode::kGather:
    case HloOpcode::kGetDimensionSize:
    case HloOpcode::kGetTupleElement:
    case HloOpcode::kIota:
    case HloOpcode::kMap:
    case HloOpcode::kOptimizationBarrier:
    case HloOpcode::kPad:
    case HloOpcode::kParameter:
    case HloOpcode::kRaggedDot:
    case HloOpcode::kReduce:
    case HloOpcode::kReducePrecision:
    case HloOpcode::kReduceWindow:
    case HloOpcode::kReshape:
    case HloOpcode::kReverse:
    case HloOpcode::kRngBitGenerator:  // its state is an operand
    case HloOpcode::kScatter:
    case HloOpcode::kSelectAndScatter:
    case HloOpcode::kSetDimensionSize:
    case HloOpcode::kSlice:
    case HloOpcode::kSort:
    case HloOpcode::kTopK:
    case HloOpcode::kTranspose:
    case HloOpcode::kTriangularSolve:
    case HloOpcode::kTuple:
    case HloOpcode::kWhile:
      return Purity::kPure;
    case HloOpcode::kCustomCall:
      return xla::Cast<xla::HloCustomCallInstruction>(&instruction)->custom_call_has_side_effect()
                 ? Purity::kImpure
                 : Purity::kPure;
    case HloOpcode::kRng:
    case HloOpcode::kRngGetAndUpdateState:
      return Purity::kRandom;
    default:
      return HloInstruction::IsOpElementwise(instruction.opcode()) ||
                     IsScanOrScaledDot(instruction.opcode())
                 ? Purity::kPure
                 : Purity::kImpure;
  }
}

bool HoldsWithCallees(const HloInstruction& instruction,
                      absl::FunctionRef<bool(const HloInstruction&)> condition) {
  if (!condition(instruction)) return false;
  return absl::c_all_of(instruction.called_computations(), [&](const HloComputation* callee) {
    return absl::c_all_of(callee->instructions(), [&](const HloInstruction* inner) {
      return HoldsWithCallees(*inner, condition);
    });
  });
}

}  // namespace tf_tpu_ext
