#include "cc/compiler/hlo/padded_arguments.h"

#include <map>
#include <optional>

#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace tf_tpu_ext {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Dimensions are set one at a time, and a size may be a vector of one element.
bool PassesOn(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kBitcast:
    case HloOpcode::kConvert:
    case HloOpcode::kCopy:
    case HloOpcode::kReshape:
    case HloOpcode::kSetDimensionSize:
      return true;
    default:
      return instruction.IsCustomCall("Sharding");
  }
}

// The argument that reaches this instruction unchanged, if any.
std::optional<ArgumentNumber> ArgumentOf(
    const HloInstruction* instruction,
    const ByNumber<ParameterNumber, ArgumentNumber>& parameter_arguments) {
  while (PassesOn(*instruction)) instruction = instruction->operand(0);
  if (instruction->opcode() != HloOpcode::kParameter) return std::nullopt;
  const ParameterNumber number(static_cast<int>(instruction->parameter_number()));
  if (!parameter_arguments.Has(number)) return std::nullopt;
  return parameter_arguments[number];
}

}  // namespace

std::vector<PaddedArgument> PaddedArguments(
    const xla::HloModule& module,
    const ByNumber<ParameterNumber, ArgumentNumber>& parameter_arguments) {
  // Maps an argument and one of its dimensions to the argument that holds its size.
  std::map<ArgumentNumber, std::map<int, ArgumentNumber>> sizes;
  for (const HloInstruction* instruction : module.entry_computation()->instructions()) {
    if (instruction->opcode() != HloOpcode::kSetDimensionSize) continue;
    const auto padded = ArgumentOf(instruction->operand(0), parameter_arguments);
    const auto size = ArgumentOf(instruction->operand(1), parameter_arguments);
    if (padded.has_value() && size.has_value()) {
      sizes[*padded].insert_or_assign(static_cast<int>(instruction->dimension()), *size);
    }
  }
  std::vector<PaddedArgument> padded;
  for (const auto& [argument, dimensions] : sizes) {
    padded.push_back({argument, {dimensions.begin(), dimensions.end()}});
  }
  return padded;
}

}  // namespace tf_tpu_ext
