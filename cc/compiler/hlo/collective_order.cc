#include "cc/compiler/hlo/collective_order.h"

#include <cstdint>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace tf_tpu_ext {
namespace {

bool IsCollective(const xla::HloInstructionProto& instruction) {
  static const auto* const opcodes = new absl::flat_hash_set<std::string>(
      {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute",
       "collective-broadcast", "ragged-all-to-all"});
  return opcodes->contains(instruction.opcode());
}

class Orderer {
 public:
  explicit Orderer(xla::HloModuleProto* module) {
    for (xla::HloComputationProto& computation : *module->mutable_computations()) {
      computations_[computation.id()] = &computation;
    }
  }

  // Orders the computation and all that it calls; returns whether it holds collectives.
  bool Order(int64_t id) {
    if (auto known = holds_.find(id); known != holds_.end()) return known->second;
    auto found = computations_.find(id);
    if (found == computations_.end()) return false;
    // Operands stand before their users, so a chain in this order closes no circle.
    const xla::HloInstructionProto* previous = nullptr;
    for (xla::HloInstructionProto& instruction : *found->second->mutable_instructions()) {
      bool ordered = IsCollective(instruction);
      for (int64_t callee : instruction.called_computation_ids()) {
        if (Order(callee)) ordered = true;
      }
      if (!ordered) continue;
      if (previous != nullptr) instruction.add_control_predecessor_ids(previous->id());
      previous = &instruction;
    }
    return holds_[id] = previous != nullptr;
  }

 private:
  absl::flat_hash_map<int64_t, xla::HloComputationProto*> computations_;
  absl::flat_hash_map<int64_t, bool> holds_;
};

}  // namespace

bool HasCollectives(const xla::HloModuleProto& module) {
  return absl::c_any_of(module.computations(), [](const xla::HloComputationProto& computation) {
    return absl::c_any_of(computation.instructions(), IsCollective);
  });
}

void OrderCollectives(xla::HloModuleProto* module) {
  Orderer(module).Order(module->entry_computation_id());
}

}  // namespace tf_tpu_ext
