// Which instructions of a training step belong to the update that is the same for all replicas.
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
  kFree,     // depends on mirrored parameters alone: either part may compute it
  kCombine,  // the replicas' values become one
  kUpdate,   // depends on combined values and free ones
};

struct CombinedValue {
  Combination combination;
  const xla::HloInstruction* value = nullptr;  // what each replica brings
};

struct UpdateParts {
  bool InUpdate(const xla::HloInstruction* instruction) const {
    const Part part = parts.at(instruction);
    return part == Part::kUpdate || part == Part::kCombine;
  }

  // Operands before their users.
  std::vector<xla::HloInstruction*> order;
  absl::flat_hash_map<const xla::HloInstruction*, Part> parts;
  // Of each instruction that is or could be kCombine.
  absl::flat_hash_map<const xla::HloInstruction*, CombinedValue> combined;
};

// The parts of a computation whose root is a tuple. Its parameters `mirrored_parameters` have one
// value for all replicas.
UpdateParts FindUpdateParts(const xla::HloComputation& entry, int num_replicas,
                            const std::vector<int>& mirrored_parameters);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_REPLICAS_UPDATE_PARTS_H_
