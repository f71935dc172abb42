#include "cc/compiler/hlo/collective_order.h"

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/utils/hlo_query.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputation;
using xla::HloInstruction;

bool Communicates(const HloInstruction* instruction) {
  return xla::hlo_query::IsCollectiveCommunicationOp(instruction->opcode());
}

class Orderer {
 public:
  // Orders the collectives of the computation and of everything it calls. Returns whether there are
  // any.
  absl::StatusOr<bool> Order(HloComputation* computation) {
    if (auto known = holds_.find(computation); known != holds_.end()) return known->second;
    HloInstruction* previous = nullptr;
    // In creation order, an instruction comes after its operands, so a chain in this order makes no
    // cycle. It is also the same for all shapes, unlike an order that depends on users.
    for (HloInstruction* instruction : computation->instructions()) {
      bool ordered = Communicates(instruction);
      for (HloComputation* callee : instruction->called_computations()) {
        TF_ASSIGN_OR_RETURN(const bool holds, Order(callee));
        ordered = ordered || holds;
      }
      if (!ordered) continue;
      if (previous != nullptr) TF_RETURN_IF_ERROR(previous->AddControlDependencyTo(instruction));
      previous = instruction;
    }
    return holds_[computation] = previous != nullptr;
  }

 private:
  absl::flat_hash_map<const HloComputation*, bool> holds_;
};

}  // namespace

bool HasCollectives(const xla::HloModule& module) {
  return absl::c_any_of(module.computations(), [](const HloComputation* computation) {
    return absl::c_any_of(computation->instructions(), Communicates);
  });
}

absl::Status OrderCollectives(xla::HloModule* module) {
  return Orderer().Order(module->entry_computation()).status();
}

}  // namespace tf_tpu_ext
