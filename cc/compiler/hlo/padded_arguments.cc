#include "cc/compiler/hlo/padded_arguments.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/algorithm/container.h"
#include "cc/compiler/hlo/instruction_table.h"

namespace tf_tpu_ext {
namespace {

using xla::HloInstructionProto;

class Finder {
 public:
  Finder(const xla::HloComputationProto& entry, absl::Span<const int> parameter_arguments)
      : parameter_arguments_(parameter_arguments), instructions_(InstructionsOf(entry)) {}

  // The argument that an instruction passes on, or -1.
  int Argument(int64_t id) const {
    for (const HloInstructionProto* at = Find(id); at != nullptr; at = Find(at->operand_ids(0))) {
      if (at->opcode() == "parameter") {
        const int64_t number = at->parameter_number();
        const auto count = static_cast<int64_t>(parameter_arguments_.size());
        return number < count ? parameter_arguments_[number] : -1;
      }
      if (!PassesOn(*at) || at->operand_ids().empty()) return -1;
    }
    return -1;
  }

 private:
  const HloInstructionProto* Find(int64_t id) const {
    const auto found = instructions_.find(LocalId(id));
    return found == instructions_.end() ? nullptr : found->second;
  }

  // Dimensions are set one after the other; a size may come as a vector of one element.
  static bool PassesOn(const HloInstructionProto& instruction) {
    static const auto* const opcodes =
        new std::set<std::string>{"bitcast", "convert", "copy", "reshape", "set-dimension-size"};
    return opcodes->count(instruction.opcode()) > 0 ||
           instruction.custom_call_target() == "Sharding";
  }

  const absl::Span<const int> parameter_arguments_;
  const InstructionTable instructions_;
};

}  // namespace

std::vector<PaddedArgument> PaddedArguments(const xla::HloModuleProto& module,
                                            absl::Span<const int> parameter_arguments) {
  const auto entry = absl::c_find_if(module.computations(), [&](const auto& computation) {
    return computation.id() == module.entry_computation_id();
  });
  if (entry == module.computations().end()) return {};
  const Finder finder(*entry, parameter_arguments);
  // By argument and dimension, the argument that holds the size.
  std::map<int, std::map<int, int>> sizes;
  for (const HloInstructionProto& instruction : entry->instructions()) {
    if (instruction.opcode() != "set-dimension-size" || instruction.operand_ids_size() != 2 ||
        instruction.dimensions().empty()) {
      continue;
    }
    const int padded = finder.Argument(instruction.operand_ids(0));
    const int size = finder.Argument(instruction.operand_ids(1));
    if (padded >= 0 && size >= 0) sizes[padded][instruction.dimensions(0)] = size;
  }
  std::vector<PaddedArgument> padded;
  for (const auto& [argument, dimensions] : sizes) {
    padded.push_back({argument, {dimensions.begin(), dimensions.end()}});
  }
  return padded;
}

}  // namespace tf_tpu_ext
