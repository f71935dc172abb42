#include "cc/compiler/hlo/collective_patterns.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"

namespace tf_tpu_ext {
namespace {

using xla::HloInstructionProto;

const HloInstructionProto* Find(const InstructionTable& instructions, int64_t id) {
  const auto found = instructions.find(LocalId(id));
  return found == instructions.end() ? nullptr : found->second;
}

bool IsSameValue(const HloInstructionProto& a, const HloInstructionProto& b) {
  if (a.id() == b.id()) return true;
  return a.opcode() == "reshape" && b.opcode() == "reshape" &&
         LocalId(a.operand_ids(0)) == LocalId(b.operand_ids(0)) &&
         a.shape().SerializeAsString() == b.shape().SerializeAsString();
}

}  // namespace

bool Communicates(const HloInstructionProto& instruction) {
  static const auto* const opcodes = new absl::flat_hash_set<std::string>(
      {"add-dependency", "after-all", "domain", "infeed", "outfeed", "partition-id",
       "ragged-all-to-all", "reduce-scatter", "replica-id"});
  const std::string& opcode = instruction.opcode();
  return opcodes->contains(opcode) || absl::StartsWith(opcode, "all-") ||
         absl::StartsWith(opcode, "async-") || absl::StartsWith(opcode, "collective-") ||
         absl::StartsWith(opcode, "send") || absl::StartsWith(opcode, "recv") ||
         absl::StartsWith(opcode, "copy-") || instruction.custom_call_has_side_effect();
}

bool IsRandom(const HloInstructionProto& instruction) {
  return instruction.opcode() == "rng" || instruction.opcode() == "rng-get-and-update-state";
}

// XLA's builder still writes the groups into a field that is deprecated.
// NOLINTBEGIN(clang-diagnostic-deprecated-declarations)
bool MeetsAllReplicas(const HloInstructionProto& collective, int num_replicas) {
  if (collective.use_global_device_ids() || collective.channel_id() != 0) return false;
  auto is_all = [&](const auto& groups) {
    return groups.empty() || (groups.size() == 1 && groups[0].replica_ids_size() == num_replicas);
  };
  if (!is_all(collective.replica_groups())) return false;
  if (!collective.has_collective_device_list()) return true;
  const auto& list = collective.collective_device_list();
  return !list.has_iota_replica_group_list() && is_all(list.replica_groups());
}

void MeetReplicas(int num_replicas, HloInstructionProto* collective) {
  collective->clear_replica_groups();
  collective->clear_collective_device_list();
  auto* group = collective->add_replica_groups();
  for (int i = 0; i < num_replicas; ++i) group->add_replica_ids(i);
}
// NOLINTEND(clang-diagnostic-deprecated-declarations)

std::string ReducerOpcode(const xla::HloComputationProto& reducer, xla::PrimitiveType type) {
  if (reducer.instructions_size() != 3) return "";
  for (const HloInstructionProto& inner : reducer.instructions()) {
    if (LocalId(inner.id()) != LocalId(reducer.root_id())) continue;
    if (inner.operand_ids_size() != 2 || inner.operand_ids(0) == inner.operand_ids(1) ||
        inner.shape().element_type() != type) {
      return "";
    }
    return inner.opcode();
  }
  return "";
}

const HloInstructionProto* FirstReplicasValue(const HloInstructionProto& slice,
                                              const InstructionTable& instructions,
                                              int num_replicas) {
  if (slice.opcode() != "slice" || slice.operand_ids_size() != 1) return nullptr;
  const HloInstructionProto* exchange = Find(instructions, slice.operand_ids(0));
  if (exchange == nullptr || exchange->opcode() != "all-to-all" ||
      exchange->operand_ids_size() != 1 || exchange->dimensions_size() != 1 ||
      !MeetsAllReplicas(*exchange, num_replicas)) {
    return nullptr;
  }
  const int64_t split = exchange->dimensions(0);
  const HloInstructionProto* pieces = Find(instructions, exchange->operand_ids(0));
  if (pieces == nullptr || pieces->opcode() != "concatenate" || pieces->dimensions_size() != 1 ||
      pieces->dimensions(0) != split || pieces->operand_ids_size() != num_replicas) {
    return nullptr;
  }
  const HloInstructionProto* first = Find(instructions, pieces->operand_ids(0));
  for (int64_t id : pieces->operand_ids()) {
    const HloInstructionProto* piece = Find(instructions, id);
    if (first == nullptr || piece == nullptr || !IsSameValue(*first, *piece)) return nullptr;
  }
  const auto& dimensions = first->shape().dimensions();
  const auto& slices = slice.slice_dimensions();
  if (dimensions.size() != slices.size() || split >= slices.size()) return nullptr;
  for (int d = 0; d < slices.size(); ++d) {
    if (slices[d].start() != 0 || slices[d].stride() != 1 || slices[d].limit() != dimensions[d]) {
      return nullptr;
    }
  }
  return first;
}

}  // namespace tf_tpu_ext
