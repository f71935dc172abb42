#include "cc/compiler/hlo/insert_probes.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cc/compiler/hlo/dynamic_values.h"
#include "cc/program/probe_call.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/hlo/ir/hlo_sharding.h"
#include "xla/layout_util.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

// Whether the instruction only passes on its input or a constant.
bool ComputesNothing(HloOpcode opcode) {
  switch (opcode) {
    case HloOpcode::kBitcast:
    case HloOpcode::kBroadcast:
    case HloOpcode::kConstant:
    case HloOpcode::kCopy:
    case HloOpcode::kGetDimensionSize:
    case HloOpcode::kIota:
    case HloOpcode::kOptimizationBarrier:
    case HloOpcode::kReshape:
    case HloOpcode::kSetDimensionSize:
    case HloOpcode::kTranspose:
      return true;
    default:
      return false;
  }
}

// Whether the instruction only says how an array is divided over cores.
bool OnlyDivides(const HloInstruction& instruction) {
  return instruction.IsCustomCall({"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"});
}

bool RunsComputations(HloOpcode opcode) {
  return opcode == HloOpcode::kWhile || opcode == HloOpcode::kConditional ||
         opcode == HloOpcode::kCall;
}

// The computations that an instruction runs as part of the program, rather than per element. Loop
// conditions are left out, because they compute scalars of which nothing remains.
std::vector<HloComputation*> RunBy(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kWhile:
      return {instruction.while_body()};
    case HloOpcode::kConditional:
      return {instruction.branch_computations().begin(), instruction.branch_computations().end()};
    case HloOpcode::kCall:
      return {instruction.to_apply()};
    default:
      return {};
  }
}

// The position of an array in a value: a list of tuple indices.
using Place = std::vector<int64_t>;

class Inserter {
 public:
  Inserter(xla::HloModule* module, bool divided) : module_(*module), divided_(divided) {}

  Probes Insert() {
    List(module_.entry_computation());
    for (HloInstruction* instruction : instructions_) {
      if (WantsProbe(*instruction)) Number(instruction);
    }
    for (const HloInstruction* instruction : probed_) {
      probes_.probes[number_.at(instruction)].operands = OperandsOf(*instruction);
    }
    const HloInstruction* root = module_.entry_computation()->root_instruction();
    for (int64_t i = 0; i < static_cast<int64_t>(root->shape().tuple_shapes().size()); ++i) {
      probes_.results.Add({From(root, {i}), std::nullopt});
    }
    NoteWhatGoesToTheHost();
    // Calls come last, because they are instructions, too.
    for (HloInstruction* instruction : probed_) AddCall(instruction);
    return std::move(probes_);
  }

 private:
  // Lists the instructions in an order in which the program may compute them.
  void List(HloComputation* computation) {
    if (!listed_.insert(computation).second) return;
    for (HloInstruction* instruction : computation->MakeInstructionPostOrder()) {
      instructions_.push_back(instruction);
      for (HloComputation* run : RunBy(*instruction)) {
        callers_[run].push_back(instruction);
        List(run);
      }
    }
  }

  bool IsLoopBody(const HloComputation* computation) const {
    const auto callers = callers_.find(computation);
    return callers != callers_.end() &&
           absl::c_any_of(callers->second, [](const HloInstruction* caller) {
             return caller->opcode() == HloOpcode::kWhile;
           });
  }

  bool WantsProbe(const HloInstruction& instruction) const {
    if (!instruction.shape().IsArray()) return false;
    if (divided_ && (instruction.shape().is_dynamic() || OnlyDivides(instruction))) return false;
    if (instruction.opcode() == HloOpcode::kSetDimensionSize) {
      return instruction.shape().is_dynamic() && !IsMarked(instruction);
    }
    if (ComputesNothing(instruction.opcode()) || RunsComputations(instruction.opcode())) {
      return false;
    }
    const HloComputation* const computation = instruction.parent();
    if (instruction.opcode() == HloOpcode::kParameter) {
      // If a parameter is padded, the probe goes to its true part.
      return IsLoopBody(computation) ||
             (computation == module_.entry_computation() && !IsMarked(instruction));
    }
    if (instruction.opcode() != HloOpcode::kGetTupleElement) return true;
    const HloInstruction& tuple = *instruction.operand(0);
    if (RunsComputations(tuple.opcode()) || tuple.opcode() == HloOpcode::kTuple ||
        tuple.opcode() == HloOpcode::kGetTupleElement) {
      return false;
    }
    if (tuple.opcode() != HloOpcode::kParameter) return true;
    // Only values that change between iterations.
    if (!IsLoopBody(computation)) return false;
    const HloInstruction* root = computation->root_instruction();
    return root->opcode() != HloOpcode::kTuple ||
           !PassesOn(*root->operand(instruction.tuple_index()), tuple, instruction.tuple_index());
  }

  // Whether the instruction says how much of an array is real data, without overriding an earlier
  // statement.
  static bool MarksPadding(const HloInstruction& instruction) {
    return instruction.opcode() == HloOpcode::kSetDimensionSize &&
           !instruction.operand(0)->shape().is_dynamic_dimension(
               static_cast<int>(instruction.dimension()));
  }

  static bool IsMarked(const HloInstruction& array) {
    return absl::c_any_of(array.users(), [&](const HloInstruction* user) {
      return MarksPadding(*user) && user->operand(0) == &array;
    });
  }

  // The program parameter whose true part the instruction is, if any.
  std::optional<ParameterNumber> ParameterOf(const HloInstruction& instruction) const {
    const HloInstruction* parameter = &instruction;
    while (MarksPadding(*parameter)) parameter = parameter->operand(0);
    if (parameter->opcode() != HloOpcode::kParameter ||
        parameter->parent() != module_.entry_computation()) {
      return std::nullopt;
    }
    return ParameterNumber(static_cast<int>(parameter->parameter_number()));
  }

  static bool PassesOn(const HloInstruction& instruction, const HloInstruction& parameter,
                       int64_t index) {
    return instruction.opcode() == HloOpcode::kGetTupleElement &&
           instruction.operand(0) == &parameter && instruction.tuple_index() == index;
  }

  void Number(HloInstruction* instruction) {
    const auto computation =
        numbers_of_computations_.try_emplace(instruction->parent(), numbers_of_computations_.size())
            .first;
    Probe probe;
    // Inlined functions have several names. The last one is the complete one.
    const std::string& names = instruction->metadata().op_name();
    probe.op = names.substr(names.rfind(';') + 1);
    probe.instruction = absl::StrCat(xla::HloOpcodeString(instruction->opcode()), " ",
                                     xla::ShapeUtil::HumanString(instruction->shape()));
    probe.computation = static_cast<int>(computation->second);
    probe.parameter = ParameterOf(*instruction);
    probe.carries = probe.parameter.has_value() || instruction->opcode() == HloOpcode::kParameter ||
                    (instruction->opcode() == HloOpcode::kGetTupleElement &&
                     instruction->operand(0)->opcode() == HloOpcode::kParameter);
    number_[instruction] = static_cast<int>(probes_.probes.size());
    probed_.push_back(instruction);
    probes_.probes.push_back(std::move(probe));
  }

  std::vector<int> OperandsOf(const HloInstruction& instruction) const {
    Search search;
    FollowThrough(&instruction, {}, &search);
    return {search.found.begin(), search.found.end()};
  }

  // The nearest probes that a value depends on.
  std::vector<int> From(const HloInstruction* instruction, const Place& place) const {
    Search search;
    Follow(instruction, place, &search);
    return {search.found.begin(), search.found.end()};
  }

  struct Search {
    std::set<int> found;
    std::set<std::pair<const HloInstruction*, Place>> seen;
  };

  void Follow(const HloInstruction* instruction, const Place& place, Search* search) const {
    if (const auto number = number_.find(instruction); number != number_.end()) {
      search->found.insert(number->second);
      return;
    }
    FollowThrough(instruction, place, search);
  }

  void FollowThrough(const HloInstruction* instruction, const Place& place, Search* search) const {
    if (!search->seen.insert({instruction, place}).second) return;
    switch (instruction->opcode()) {
      case HloOpcode::kGetTupleElement: {
        Place inner = {instruction->tuple_index()};
        inner.insert(inner.end(), place.begin(), place.end());
        return Follow(instruction->operand(0), inner, search);
      }
      case HloOpcode::kTuple:
        if (place.empty()) break;
        return Follow(instruction->operand(place[0]), Place(place.begin() + 1, place.end()),
                      search);
      case HloOpcode::kWhile:
        Follow(instruction->operand(0), place, search);
        return Follow(instruction->while_body()->root_instruction(), place, search);
      case HloOpcode::kConditional:
        Follow(instruction->operand(0), {}, search);
        for (const HloComputation* branch : instruction->branch_computations()) {
          Follow(branch->root_instruction(), place, search);
        }
        return;
      case HloOpcode::kCall:
        return Follow(instruction->to_apply()->root_instruction(), place, search);
      case HloOpcode::kParameter:
        return FollowToCallers(*instruction, place, search);
      default:
        break;
    }
    for (const HloInstruction* operand : instruction->operands()) Follow(operand, {}, search);
  }

  void FollowToCallers(const HloInstruction& parameter, const Place& place, Search* search) const {
    const auto callers = callers_.find(parameter.parent());
    if (callers == callers_.end()) return;
    for (const HloInstruction* caller : callers->second) {
      switch (caller->opcode()) {
        case HloOpcode::kWhile:
          Follow(caller->operand(0), place, search);
          Follow(parameter.parent()->root_instruction(), place, search);
          break;
        case HloOpcode::kConditional:
          for (int branch = 0; branch < caller->branch_count(); ++branch) {
            if (caller->branch_computation(branch) == parameter.parent()) {
              Follow(caller->operand(branch + 1), place, search);
            }
          }
          break;
        default:
          Follow(caller->operand(parameter.parameter_number()), place, search);
      }
    }
  }

  void NoteWhatGoesToTheHost() {
    Search search;
    for (const HloInstruction* instruction : instructions_) {
      const auto* call = xla::DynCast<xla::HloCustomCallInstruction>(instruction);
      if (call == nullptr || !call->custom_call_has_side_effect()) continue;
      for (const HloInstruction* operand : call->operands()) Follow(operand, {}, &search);
    }
    probes_.to_host.assign(search.found.begin(), search.found.end());
  }

  void AddCall(HloInstruction* value) const {
    ProbeCall call;
    call.probe = number_.at(value);
    HloComputation* const computation = value->parent();
    HloInstruction* shown = value;
    std::vector<HloInstruction*> sizes;
    for (int d = 0; d < static_cast<int>(value->shape().dimensions().size()); ++d) {
      if (!value->shape().is_dynamic_dimension(d)) continue;
      call.dynamic.push_back({0, d});
      sizes.push_back(SizeOf(value, d));
      shown = AtBound(shown, d);
    }
    std::vector<HloInstruction*> operands = {shown};
    operands.insert(operands.end(), sizes.begin(), sizes.end());
    operands.push_back(computation->AddInstruction(HloInstruction::CreateToken()));
    std::vector<xla::Shape> shapes;
    for (const HloInstruction* operand : operands) {
      shapes.push_back(operand->shape());
      if (shapes.back().IsArray()) xla::LayoutUtil::SetToDefaultLayout(&shapes.back());
    }
    HloInstruction* const made = computation->AddInstruction(HloInstruction::CreateCustomCall(
        xla::ShapeUtil::MakeTokenShape(), operands, kProbeTarget, shapes, Encode(call),
        xla::CustomCallApiVersion::API_VERSION_TYPED_FFI));
    xla::Cast<xla::HloCustomCallInstruction>(made)->set_custom_call_has_side_effect(true);
    made->set_metadata(value->metadata());
    if (divided_) made->set_sharding(xla::HloSharding::Replicate());
  }

  xla::HloModule& module_;
  const bool divided_;
  Probes probes_;
  // The instructions of the entry computation and everything it runs.
  std::vector<HloInstruction*> instructions_;
  std::set<const HloComputation*> listed_;
  absl::flat_hash_map<const HloComputation*, std::vector<const HloInstruction*>> callers_;
  absl::flat_hash_map<const HloComputation*, size_t> numbers_of_computations_;
  absl::flat_hash_map<const HloInstruction*, int> number_;
  // In numerical order.
  std::vector<HloInstruction*> probed_;
};

}  // namespace

Probes InsertProbes(xla::HloModule* module, bool divided) {
  return Inserter(module, divided).Insert();
}

}  // namespace tf_tpu_ext
