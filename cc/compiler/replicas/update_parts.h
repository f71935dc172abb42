// Finds the instructions of a training step that belong to the update, which is the same for all
// replicas.
#ifndef TF_TPU_EXT_CC_COMPILER_REPLICAS_UPDATE_PARTS_H_
#define TF_TPU_EXT_CC_COMPILER_REPLICAS_UPDATE_PARTS_H_

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cc/program/shared_update.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace tf_tpu_ext {

enum class Part {
  kReplica,
  kFree,     // depends only on mirrored parameters: either part may compute it
  kCombine,  // combines the replicas' values into one
  kUpdate,   // depends on combined and free values
};

struct CombinedValue {
  Combination combination;
  const xla::HloInstruction* value = nullptr;  // what each replica contributes
};

struct UpdateParts {
  bool InUpdate(const xla::HloInstruction* instruction) const {
    const Part part = parts.at(instruction);
    return part == Part::kUpdate || part == Part::kCombine;
  }

  // Operands before their users.
  std::vector<xla::HloInstruction*> order;
  absl::flat_hash_map<const xla::HloInstruction*, Part> parts;
  // For each instruction that is or could be kCombine.
  absl::flat_hash_map<const xla::HloInstruction*, CombinedValue> combined;
};

// Divides a computation whose root is a tuple into its parts. The parameters in
// `mirrored_parameters` have the same value on all replicas.
UpdateParts FindUpdateParts(const xla::HloComputation& entry, int num_replicas,
                            const std::vector<int>& mirrored_parameters);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_REPLICAS_UPDATE_PARTS_H_
