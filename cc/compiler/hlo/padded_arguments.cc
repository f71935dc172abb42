#include "cc/compiler/hlo/padded_arguments.h"

#include <cstdint>
#include <map>

#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace tf_tpu_ext {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Dimensions are set one after the other; a size may come as a vector of one element.
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

// The argument that an instruction passes on, or -1.
int ArgumentOf(const HloInstruction* instruction, absl::Span<const int> parameter_arguments) {
  while (PassesOn(*instruction)) instruction = instruction->operand(0);
  if (instruction->opcode() != HloOpcode::kParameter) return -1;
  const int64_t number = instruction->parameter_number();
  const auto count = static_cast<int64_t>(parameter_arguments.size());
  return number < count ? parameter_arguments[number] : -1;
}

}  // namespace

std::vector<PaddedArgument> PaddedArguments(const xla::HloModule& module,
                                            absl::Span<const int> parameter_arguments) {
  // By argument and dimension, the argument that holds the size.
  std::map<int, std::map<int, int>> sizes;
  for (const HloInstruction* instruction : module.entry_computation()->instructions()) {
    if (instruction->opcode() != HloOpcode::kSetDimensionSize) continue;
    const int padded = ArgumentOf(instruction->operand(0), parameter_arguments);
    const int size = ArgumentOf(instruction->operand(1), parameter_arguments);
    if (padded >= 0 && size >= 0) sizes[padded][instruction->dimension()] = size;
  }
  std::vector<PaddedArgument> padded;
  for (const auto& [argument, dimensions] : sizes) {
    padded.push_back({argument, {dimensions.begin(), dimensions.end()}});
  }
  return padded;
}

}  // namespace tf_tpu_ext
