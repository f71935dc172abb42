#include "cc/compiler/hlo/computation_cost.h"

#include <string>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cc/compiler/hlo/instruction_table.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputationProto;
using xla::HloInstructionProto;

// Half a megabyte of float32: a computation reads and writes several such arrays at once.
constexpr int64_t kCachedElements = 128 * 1024;

int64_t CostOfArray(int64_t elements) {
  return elements > kCachedElements ? elements + elements / 2 : elements;
}

// Computes nothing of its own, is fused into what does, or divides its work by itself.
bool IsFree(const HloInstructionProto& instruction) {
  static const auto* const free = new absl::flat_hash_set<std::string>(
      {"bitcast", "broadcast", "call", "conditional", "constant", "convolution", "custom-call",
       "dot", "get-tuple-element", "iota", "parameter", "reshape", "tuple", "while"});
  return free->contains(instruction.opcode()) || !instruction.shape().tuple_shapes().empty();
}

class CostCounter {
 public:
  explicit CostCounter(const xla::HloModuleProto& module) {
    for (const HloComputationProto& computation : module.computations()) {
      computations_[computation.id()] = &computation;
    }
  }

  // Adds the cost of so many rounds of the computation.
  void Count(int64_t computation_id, int64_t rounds, ComputationCost* cost) const {
    const auto found = computations_.find(computation_id);
    if (found == computations_.end()) return;
    const HloComputationProto& computation = *found->second;
    const InstructionTable instructions = InstructionsOf(computation);
    absl::flat_hash_set<int32_t> needed = {LocalId(computation.root_id())};
    // Operands stand before their users.
    for (int i = computation.instructions_size() - 1; i >= 0; --i) {
      const HloInstructionProto& instruction = computation.instructions(i);
      if (!needed.contains(LocalId(instruction.id()))) continue;
      for (int64_t operand : instruction.operand_ids()) needed.insert(LocalId(operand));
      if (!IsFree(instruction)) {
        const int64_t added = rounds * CostOfArray(Elements(instruction, instructions));
        cost->all += added;
        if (rounds > 1) cost->in_loops += added;
      }
      const bool loops = instruction.opcode() == "while";
      if (loops || instruction.opcode() == "call" || instruction.opcode() == "conditional") {
        for (int64_t callee : instruction.called_computation_ids()) {
          Count(callee, loops ? rounds * ComputationCost::kLoopRounds : rounds, cost);
        }
      }
    }
  }

 private:
  static int64_t Elements(const HloInstructionProto& instruction,
                          const InstructionTable& instructions) {
    const auto operand = [&](int number) {
      return instructions.at(LocalId(instruction.operand_ids(number)))->shape();
    };
    if (instruction.opcode() == "reduce") return NumElements(operand(0));
    if (instruction.opcode() == "scatter") return NumElements(operand(2));
    if (instruction.opcode() == "dynamic-update-slice") return NumElements(operand(1));
    return NumElements(instruction.shape());
  }

  absl::flat_hash_map<int64_t, const HloComputationProto*> computations_;
};

}  // namespace

ComputationCost CostOf(const xla::HloModuleProto& module) {
  ComputationCost cost;
  CostCounter(module).Count(module.entry_computation_id(), /*rounds=*/1, &cost);
  return cost;
}

}  // namespace tf_tpu_ext
