#include "cc/compiler/hlo/collective_patterns.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/algorithm/container.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/literal.h"

namespace tf_tpu_ext {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

std::vector<int64_t> Numbers(int count) {
  std::vector<int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

bool IsSameValue(const HloInstruction& a, const HloInstruction& b) {
  if (&a == &b) return true;
  return a.opcode() == HloOpcode::kReshape && b.opcode() == HloOpcode::kReshape &&
         a.operand(0) == b.operand(0) && a.shape() == b.shape();
}

// Whether `slice` is the piece that begins at zero and has the shape of `piece`.
bool IsFirstPiece(const HloInstruction& slice, const HloInstruction& piece) {
  return absl::c_all_of(slice.slice_starts(), [](int64_t start) { return start == 0; }) &&
         absl::c_all_of(slice.slice_strides(), [](int64_t stride) { return stride == 1; }) &&
         absl::c_equal(slice.slice_limits(), piece.shape().dimensions());
}

bool IsZero(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kBroadcast:
    case HloOpcode::kConvert:
    case HloOpcode::kReshape:
      return IsZero(*instruction.operand(0));
    case HloOpcode::kConstant:
      return instruction.literal().IsAll(0);
    default:
      return false;
  }
}

}  // namespace

bool MeetsAllReplicas(const HloInstruction& collective, int num_replicas) {
  if (collective.channel_id().has_value()) return false;
  const auto* reduction = xla::DynCast<xla::HloAllReduceInstructionBase>(&collective);
  if (reduction != nullptr && reduction->use_global_device_ids()) return false;
  const std::vector<xla::ReplicaGroup>& groups = collective.device_list().replica_groups();
  return groups.empty() ||
         (groups.size() == 1 && absl::c_equal(groups[0].replica_ids(), Numbers(num_replicas)));
}

xla::CollectiveDeviceList AllReplicas(int num_replicas) {
  return xla::CollectiveDeviceList(std::vector<std::vector<int64_t>>{Numbers(num_replicas)});
}

std::optional<HloOpcode> ReducerOpcode(const xla::HloComputation& reducer,
                                       xla::PrimitiveType type) {
  const HloInstruction* root = reducer.root_instruction();
  if (reducer.instruction_count() != 3 || root->operand_count() != 2 ||
      root->operand(0) == root->operand(1) || root->shape().element_type() != type) {
    return std::nullopt;
  }
  return root->opcode();
}

bool AddsToZero(const HloInstruction& instruction) {
  int initial = 0;  // the number of an operand
  if (instruction.opcode() == HloOpcode::kReduce) {
    initial = 1;
  } else if (instruction.opcode() != HloOpcode::kScatter) {
    return false;
  }
  if (!instruction.shape().IsArray()) return false;
  const std::optional<HloOpcode> reducer =
      ReducerOpcode(*instruction.to_apply(), instruction.shape().element_type());
  return reducer == HloOpcode::kAdd && IsZero(*instruction.operand(initial));
}

const HloInstruction* FirstReplicasValue(const HloInstruction& slice, int num_replicas) {
  if (slice.opcode() != HloOpcode::kSlice) return nullptr;
  const auto* exchange = xla::DynCast<xla::HloAllToAllInstruction>(slice.operand(0));
  if (exchange == nullptr || exchange->operand_count() != 1 ||
      !exchange->split_dimension().has_value() || !MeetsAllReplicas(*exchange, num_replicas)) {
    return nullptr;
  }
  const HloInstruction* pieces = exchange->operand(0);
  if (pieces->opcode() != HloOpcode::kConcatenate ||
      pieces->concatenate_dimension() != *exchange->split_dimension() ||
      pieces->operand_count() != num_replicas) {
    return nullptr;
  }
  const HloInstruction* first = pieces->operand(0);
  for (const HloInstruction* piece : pieces->operands()) {
    if (!IsSameValue(*first, *piece)) return nullptr;
  }
  return IsFirstPiece(slice, *first) ? first : nullptr;
}

}  // namespace tf_tpu_ext
