#include "cc/compiler/replicas/batch_replicas.h"

#include <cstdint>

#include "cc/compiler/replicas/replica_batcher.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

struct Attempt {
  BatchedModule batched;
  // The number of elements in variables that differ between replicas. Each step copies these into
  // batches and back, while mirrored variables are read in place.
  int64_t elements_apart = 0;
};

// Batches the program. A variable whose new values differ becomes a batch. That may make other new
// values differ, so it tries again, with more batches each time, until none do.
absl::StatusOr<Attempt> Try(const xla::HloModule& module, const BatchOptions& options,
                            std::vector<bool> batched_parameters) {
  Attempt attempt;
  while (true) {
    TF_ASSIGN_OR_RETURN(BatchedModule batched,
                        ReplicaBatcher(module, options).Run(batched_parameters));
    bool changed = false;
    for (const auto& [parameter, result] : options.updated_parameters) {
      if (batched_parameters[parameter] || !batched.batched_results[result]) continue;
      batched_parameters[parameter] = true;
      attempt.elements_apart += xla::ShapeUtil::ElementsIn(
          module.entry_computation()->parameter_instruction(parameter)->shape());
      changed = true;
    }
    if (changed) continue;
    attempt.batched = std::move(batched);
    return attempt;
  }
}

}  // namespace

absl::StatusOr<BatchedModule> BatchReplicas(const xla::HloModule& module,
                                            const BatchOptions& options) {
  const auto& parameters = module.entry_computation()->parameter_instructions();
  std::vector<bool> batched(parameters.size(), true);
  for (int parameter : options.mirrored_parameters) batched[parameter] = false;
  TF_ASSIGN_OR_RETURN(Attempt best, Try(module, options, batched));
  if (best.elements_apart > 0) {
    // A number such as a learning rate may be the same for all replicas even if nothing says so.
    for (size_t i = 0; i < parameters.size(); ++i) {
      const xla::Shape& shape = parameters[i]->shape();
      if (shape.IsArray() && shape.dimensions().empty()) batched[i] = false;
    }
    TF_ASSIGN_OR_RETURN(Attempt other, Try(module, options, batched));
    if (other.elements_apart < best.elements_apart) best = std::move(other);
  }
  return std::move(best.batched);
}

}  // namespace tf_tpu_ext
