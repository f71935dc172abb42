#include "cc/compiler/replicas/update_parts.h"

#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "cc/compiler/hlo/collective_patterns.h"
#include "cc/compiler/hlo/purity.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Whether the update may compute the instruction, regardless of what it calls. A custom call runs
// one of TensorFlow's kernels or calls the host. Such calls rely on the replica's arguments, so
// they stay in the replica. The update also does not know sizes that are known only to a replica's
// run.
bool MayMoveAlone(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kCustomCall:
    case HloOpcode::kGetDimensionSize:
    case HloOpcode::kSetDimensionSize:
      return false;
    default:
      return PurityOf(instruction) == Purity::kPure;
  }
}

// Whether a replica should not compute the instruction twice, for itself and for the update.
bool IsHeavy(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kCholesky:
    case HloOpcode::kConditional:
    case HloOpcode::kConvolution:
    case HloOpcode::kCustomCall:
    case HloOpcode::kDot:
    case HloOpcode::kFft:
    case HloOpcode::kReduceWindow:
    case HloOpcode::kRngBitGenerator:
    case HloOpcode::kScatter:
    case HloOpcode::kSelectAndScatter:
    case HloOpcode::kSort:
    case HloOpcode::kTopK:
    case HloOpcode::kTriangularSolve:
    case HloOpcode::kWhile:
      return true;
    default:
      return false;
  }
}

std::optional<Combination::Kind> KindOf(HloOpcode reducer) {
  switch (reducer) {
    case HloOpcode::kAdd:
      return Combination::kSum;
    case HloOpcode::kMultiply:
      return Combination::kProduct;
    case HloOpcode::kMinimum:
      return Combination::kMin;
    case HloOpcode::kMaximum:
      return Combination::kMax;
    default:
      return std::nullopt;
  }
}

std::optional<CombinedValue> AsReduction(const HloInstruction& instruction, int num_replicas) {
  if (instruction.operand_count() != 1 || !MeetsAllReplicas(instruction, num_replicas)) {
    return std::nullopt;
  }
  const xla::PrimitiveType type = instruction.shape().element_type();
  const std::optional<HloOpcode> reducer = ReducerOpcode(*instruction.to_apply(), type);
  if (!reducer.has_value()) return std::nullopt;
  const std::optional<Combination::Kind> kind = KindOf(*reducer);
  if (!kind.has_value()) return std::nullopt;
  return CombinedValue{{*kind, type}, instruction.operand(0)};
}

std::optional<CombinedValue> AsCombination(const HloInstruction& instruction, int num_replicas) {
  if (instruction.opcode() == HloOpcode::kAllReduce) return AsReduction(instruction, num_replicas);
  const HloInstruction* first = FirstReplicasValue(instruction, num_replicas);
  if (first == nullptr) return std::nullopt;
  return CombinedValue{{Combination::kFirst, first->shape().element_type()}, first};
}

class Divider {
 public:
  Divider(const xla::HloComputation& entry, int num_replicas, const std::vector<int>& mirrored)
      : root_(entry.root_instruction()),
        num_replicas_(num_replicas),
        mirrored_(mirrored.begin(), mirrored.end()) {
    made_.order = entry.MakeInstructionPostOrder();
  }

  UpdateParts Divide() && {
    for (const HloInstruction* instruction : made_.order) {
      made_.parts[instruction] = PartOf(*instruction);
    }
    KeepWhatOnlyTheUpdateNeeds();
    return std::move(made_);
  }

 private:
  // Decides from the operands, whose parts are known.
  Part PartOf(const HloInstruction& instruction) {
    // An instruction with control dependencies stays with the other instructions.
    if (&instruction == root_ || instruction.HasControlDependencies()) return Part::kReplica;
    if (instruction.opcode() == HloOpcode::kParameter) {
      // Scalars are allowed even if they differ between replicas. The update then runs for each
      // replica.
      const bool scalar = instruction.shape().IsArray() && instruction.shape().dimensions().empty();
      return scalar || mirrored_.contains(instruction.parameter_number()) ? Part::kFree
                                                                          : Part::kReplica;
    }
    if (std::optional<CombinedValue> combined = AsCombination(instruction, num_replicas_)) {
      made_.combined[&instruction] = *combined;
      return Part::kCombine;
    }
    if (!HoldsWithCallees(instruction, MayMoveAlone)) return Part::kReplica;
    Part part = Part::kFree;
    for (const HloInstruction* operand : instruction.operands()) {
      const Part of_operand = made_.parts.at(operand);
      if (of_operand == Part::kReplica) return Part::kReplica;
      if (of_operand != Part::kFree) part = Part::kUpdate;
    }
    return part == Part::kFree && IsHeavy(instruction) ? Part::kReplica : part;
  }

  // Removes from the update whatever the replica's own part reads, and everything that depends on
  // it. Otherwise the replica would have to wait for the update, which runs after all replicas have
  // finished.
  void KeepWhatOnlyTheUpdateNeeds() {
    for (const HloInstruction* instruction : made_.order) {
      if (instruction == root_) continue;
      const Part part = made_.parts.at(instruction);
      if (part == Part::kReplica || part == Part::kCombine) {
        for (const HloInstruction* operand : instruction->operands()) GiveBack(operand);
      }
      if (auto combined = made_.combined.find(instruction); combined != made_.combined.end()) {
        GiveBack(combined->second.value);
      }
    }
    while (!leaving_.empty()) {
      const HloInstruction* instruction = leaving_.back();
      leaving_.pop_back();
      for (const HloInstruction* operand : instruction->operands()) GiveBack(operand);
      for (const HloInstruction* user : instruction->users()) {
        if (made_.parts.at(user) == Part::kUpdate) GiveBack(user);
      }
    }
  }

  void GiveBack(const HloInstruction* instruction) {
    if (!made_.InUpdate(instruction)) return;
    made_.parts[instruction] = Part::kReplica;
    leaving_.push_back(instruction);
  }

  const HloInstruction* const root_;
  const int num_replicas_;
  const absl::flat_hash_set<int> mirrored_;
  UpdateParts made_;
  std::vector<const HloInstruction*> leaving_;
};

}  // namespace

UpdateParts FindUpdateParts(const xla::HloComputation& entry, int num_replicas,
                            const std::vector<int>& mirrored_parameters) {
  return Divider(entry, num_replicas, mirrored_parameters).Divide();
}

}  // namespace tf_tpu_ext
