#include "cc/compiler/replicas/split_update.h"

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "cc/compiler/hlo/module.h"
#include "cc/compiler/replicas/update_parts.h"
#include "xla/hlo/ir/hlo_clone_context.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/hlo/transforms/simplifiers/hlo_dce.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloModule;
using xla::HloOpcode;

using Instructions = std::vector<const HloInstruction*>;

// Sums over more replicas, like sums that several instructions read, are better computed once.
constexpr int kMostSummedByUpdate = 4;

// Whether the instruction computes each element from one element of each operand, so that compilers
// fuse it with the instructions that compute its operands.
bool IsElementwiseArithmetic(HloOpcode opcode) {
  return opcode == HloOpcode::kAdd || opcode == HloOpcode::kSubtract ||
         opcode == HloOpcode::kMultiply || opcode == HloOpcode::kDivide;
}

// Summing as part of the only instruction that reads the sum costs less than a pass over memory.
bool MayBeSummedByUpdate(const HloInstruction& sum, const Combination& combination,
                         int num_replicas) {
  return combination.kind == Combination::kSum && combination.type == xla::F32 &&
         num_replicas <= kMostSummedByUpdate && sum.user_count() == 1 &&
         sum.users()[0]->OperandIndices(&sum).size() == 1 &&
         IsElementwiseArithmetic(sum.users()[0]->opcode());
}

// The original program with other results. Whatever only the update needs disappears with its
// results.
absl::StatusOr<std::unique_ptr<HloModule>> BuildReplica(const HloModule& whole,
                                                        const Instructions& results) {
  // Without a suffix, a clone keeps all names.
  std::unique_ptr<HloModule> module = whole.Clone(/*suffix=*/"");
  HloComputation* entry = module->entry_computation();
  std::vector<HloInstruction*> values;
  for (const HloInstruction* result : results) {
    HloInstruction* value = entry->GetInstructionWithName(result->name());
    if (value == nullptr) {
      return absl::InternalError(
          absl::StrCat("The clone of module ", whole.name(), " has no ", result->name(), "."));
    }
    values.push_back(value);
  }
  entry->set_root_instruction(entry->AddInstruction(HloInstruction::CreateTuple(values)),
                              /*accept_different_shape=*/true);
  ResultChanged(module.get());
  // This removes the collectives, too, because nobody reads what they combine. No replica waits for
  // another.
  TF_RETURN_IF_ERROR(xla::HloDCE().Run(module.get()).status());
  return module;
}

class UpdateBuilder {
 public:
  UpdateBuilder(const HloModule& whole, const UpdateParts& parts, int num_replicas)
      : entry_(*whole.entry_computation()),
        parts_(parts),
        num_replicas_(num_replicas),
        module_(EmptyModuleLike(whole)),
        context_(module_.get()),
        builder_(entry_.name()) {}

  void Build(const Instructions& results, SplitProgram* split) && {
    const absl::flat_hash_set<const HloInstruction*> needed = Needed(results);
    // Keeps all parameters, so that their numbers don't change.
    for (const HloInstruction* parameter : entry_.parameter_instructions()) {
      made_[parameter] = builder_.AddInstruction(parameter->Clone(/*suffix=*/"", &context_));
      if (needed.contains(parameter)) {
        split->update_parameters.push_back(parameter->parameter_number());
      }
    }
    int combination = 0;
    for (const HloInstruction* instruction : parts_.order) {
      if (parts_.parts.at(instruction) == Part::kCombine) {
        // Even if nothing reads it, because the replicas pass its values anyway.
        made_[instruction] = AddCombined(*instruction, combination++, split);
      } else if (needed.contains(instruction) && instruction->opcode() != HloOpcode::kParameter) {
        std::vector<HloInstruction*> operands = Made(instruction->operands());
        made_[instruction] = builder_.AddInstruction(
            instruction->CloneWithNewOperands(instruction->shape(), operands, &context_));
      }
    }
    HloInstruction* root = builder_.AddInstruction(HloInstruction::CreateTuple(Made(results)));
    AddEntry(builder_.Build(root), module_.get());
    split->update = std::move(module_);
  }

 private:
  absl::flat_hash_set<const HloInstruction*> Needed(const Instructions& results) const {
    absl::flat_hash_set<const HloInstruction*> needed(results.begin(), results.end());
    for (auto at = parts_.order.rbegin(); at != parts_.order.rend(); ++at) {
      if (!needed.contains(*at) || parts_.parts.at(*at) == Part::kCombine) continue;
      needed.insert((*at)->operands().begin(), (*at)->operands().end());
    }
    return needed;
  }

  template <typename Originals>
  std::vector<HloInstruction*> Made(const Originals& originals) const {
    std::vector<HloInstruction*> made;
    for (const HloInstruction* original : originals) made.push_back(made_.at(original));
    return made;
  }

  // The parameter that replaces a combination, or the sum of one parameter per replica. XLA fuses
  // these additions with the instruction that reads the sum, which is impossible for the runtime's
  // sum of buffers.
  HloInstruction* AddCombined(const HloInstruction& original, int number, SplitProgram* split) {
    const int values = split->combinations[number].by_update ? num_replicas_ : 1;
    HloInstruction* sum = nullptr;
    for (int value = 0; value < values; ++value) {
      const auto parameter = static_cast<int>(entry_.num_parameters()) + split->num_combined_values;
      ++split->num_combined_values;
      HloInstruction* added = builder_.AddInstruction(HloInstruction::CreateParameter(
          parameter, original.shape(), absl::StrCat("combined.", number, ".", value)));
      sum = sum == nullptr ? added
                           : builder_.AddInstruction(HloInstruction::CreateBinary(
                                 original.shape(), HloOpcode::kAdd, sum, added));
    }
    return sum;
  }

  const HloComputation& entry_;
  const UpdateParts& parts_;
  const int num_replicas_;
  std::unique_ptr<HloModule> module_;
  xla::HloCloneContext context_;
  HloComputation::Builder builder_;
  absl::flat_hash_map<const HloInstruction*, HloInstruction*> made_;
};

}  // namespace

absl::StatusOr<std::optional<SplitProgram>> SplitUpdate(
    const HloModule& module, int num_replicas, const std::vector<int>& mirrored_parameters) {
  const HloInstruction* root = module.entry_computation()->root_instruction();
  if (num_replicas < 2 || root->opcode() != HloOpcode::kTuple) return std::nullopt;
  const UpdateParts parts =
      FindUpdateParts(*module.entry_computation(), num_replicas, mirrored_parameters);
  SplitProgram split;
  Instructions replica_results, update_results;
  for (int result = 0; result < root->operand_count(); ++result) {
    const HloInstruction* value = root->operand(result);
    // What either part may compute belongs to the replica, whose results are available earlier.
    const bool in_update = parts.InUpdate(value);
    (in_update ? split.update_results : split.replica_results).push_back(result);
    (in_update ? update_results : replica_results).push_back(value);
  }
  // UpdateBuilder numbers the combinations in the same order.
  for (const HloInstruction* instruction : parts.order) {
    if (parts.parts.at(instruction) != Part::kCombine) continue;
    const CombinedValue& combined = parts.combined.at(instruction);
    split.combinations.push_back(combined.combination);
    split.combinations.back().by_update =
        MayBeSummedByUpdate(*instruction, combined.combination, num_replicas);
    replica_results.push_back(combined.value);
  }
  if (split.combinations.empty()) return std::nullopt;
  TF_ASSIGN_OR_RETURN(split.replica, BuildReplica(module, replica_results));
  UpdateBuilder(module, parts, num_replicas).Build(update_results, &split);
  return split;
}

}  // namespace tf_tpu_ext
