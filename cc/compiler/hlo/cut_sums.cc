#include "cc/compiler/hlo/cut_sums.h"

#include <cstdint>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "cc/compiler/hlo/collective_patterns.h"
#include "cc/compiler/hlo/cut_chains.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/errors.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

// With fewer addends, or fewer for each result, writing the product to memory costs as much as the
// library saves.
constexpr int64_t kFewestAddends = 1 << 19;
constexpr int64_t kFewestAddendsOfResult = 512;

// Whether XLA computes this together with a sum of it. It turns divisions and powers into products.
bool JoinsSum(const HloInstruction& summed) {
  switch (summed.opcode()) {
    case HloOpcode::kConvert:
      // tf2xla converts to the type of the sum, often from the same type.
      return summed.operand(0)->shape().element_type() != summed.shape().element_type() ||
             JoinsSum(*summed.operand(0));
    case HloOpcode::kDivide:
    case HloOpcode::kMultiply:
    case HloOpcode::kPower:
      return true;
    case HloOpcode::kReshape:
      return JoinsSum(*summed.operand(0));
    default:
      return false;
  }
}

bool IsSlowSum(const HloInstruction& instruction) {
  if (instruction.opcode() != HloOpcode::kReduce || !AddsToZero(instruction)) return false;
  const HloInstruction& summed = *instruction.operand(0);
  const xla::Shape& shape = summed.shape();
  if (shape.element_type() != xla::F32 || !JoinsSum(summed)) return false;
  const auto dimensions = absl::c_count_if(
      instruction.dimensions(), [&](int64_t dimension) { return shape.dimensions(dimension) > 1; });
  const int64_t addends = xla::ShapeUtil::ElementsIn(shape);
  const int64_t results = xla::ShapeUtil::ElementsIn(instruction.shape());
  return dimensions > 1 && addends >= kFewestAddends && addends / kFewestAddendsOfResult >= results;
}

}  // namespace

absl::Status CutSums(xla::HloModule* module) {
  if (HasDynamicShapes(*module)) return absl::OkStatus();
  for (HloComputation* computation : ComputationsOfOps(module)) {
    absl::flat_hash_map<HloInstruction*, HloInstruction*> cuts;
    for (HloInstruction* sum : computation->MakeInstructionPostOrder()) {
      if (!IsSlowSum(*sum)) continue;
      HloInstruction*& cut = cuts[sum->mutable_operand(0)];
      if (cut == nullptr) cut = AddCutOf(sum->mutable_operand(0));
      TF_RETURN_IF_ERROR(sum->ReplaceOperandWith(0, cut));
    }
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
