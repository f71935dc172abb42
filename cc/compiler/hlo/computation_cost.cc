#include "cc/compiler/hlo/computation_cost.h"

#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

// Half a megabyte of float32, because a computation reads and writes several such arrays at once.
constexpr int64_t kCachedElements = 128 * 1024;

int64_t CostOfArray(int64_t elements) {
  return elements > kCachedElements ? elements + elements / 2 : elements;
}

// Whether the instruction computes nothing itself, is fused into one that does, or splits its own
// work.
bool IsFree(const HloInstruction& instruction) {
  if (!instruction.shape().IsArray()) return true;
  switch (instruction.opcode()) {
    case HloOpcode::kBitcast:
    case HloOpcode::kBroadcast:
    case HloOpcode::kCall:
    case HloOpcode::kConditional:
    case HloOpcode::kConstant:
    case HloOpcode::kConvolution:
    case HloOpcode::kCustomCall:
    case HloOpcode::kDot:
    case HloOpcode::kGetTupleElement:
    case HloOpcode::kIota:
    case HloOpcode::kParameter:
    case HloOpcode::kReshape:
    case HloOpcode::kWhile:
      return true;
    default:
      return false;
  }
}

// The number of elements that a reduction reads or an update writes. For other instructions, the
// number that they produce.
int64_t Elements(const HloInstruction& instruction) {
  const HloInstruction* array = &instruction;
  if (instruction.opcode() == HloOpcode::kReduce) array = instruction.operand(0);
  if (instruction.opcode() == HloOpcode::kScatter) array = instruction.operand(2);
  if (instruction.opcode() == HloOpcode::kDynamicUpdateSlice) array = instruction.operand(1);
  return xla::ShapeUtil::ElementsIn(array->shape());
}

// Adds the cost of running the computation `rounds` times.
void Count(const HloComputation& computation, int64_t rounds, ComputationCost* cost) {
  for (const HloInstruction* instruction :
       computation.MakeInstructionPostOrderFrom(*computation.root_instruction())) {
    if (!IsFree(*instruction)) {
      const int64_t added = rounds * CostOfArray(Elements(*instruction));
      cost->all += added;
      if (rounds > 1) cost->in_loops += added;
    }
    const bool loops = instruction->opcode() == HloOpcode::kWhile;
    if (loops || instruction->opcode() == HloOpcode::kCall ||
        instruction->opcode() == HloOpcode::kConditional) {
      for (const HloComputation* callee : instruction->called_computations()) {
        Count(*callee, loops ? rounds * ComputationCost::kLoopRounds : rounds, cost);
      }
    }
  }
}

}  // namespace

ComputationCost CostOf(const xla::HloModule& module) {
  ComputationCost cost;
  Count(*module.entry_computation(), /*rounds=*/1, &cost);
  return cost;
}

}  // namespace tf_tpu_ext
