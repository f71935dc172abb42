// Makes one program of several replicas'.
//
// With more replicas than processors, each replica's ops are small, and each replica holds
// gradients and intermediate values of its own. Here a group of replicas runs as one program, whose
// arrays have a first dimension for the replicas: a matrix product of all their rows with the same
// weights is one product, and the sum of their gradients is made where the gradients are. What is
// the same for all replicas, such as mirrored variables, keeps its shape and is computed once. This
// is what jax.vmap does, with a batching rule for each kind of instruction (batching_rules.h); what
// has none is computed for one replica after the other.
#ifndef TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCH_REPLICAS_H_
#define TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCH_REPLICAS_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

struct BatchOptions {
  int num_replicas = 1;
  // Replicas in a group: a divisor of `num_replicas`.
  int group_size = 1;
  // Parameters that are expected to be equal for all replicas, as variables are.
  std::vector<int> mirrored_parameters;
  // Variables: numbers of a parameter and of the result that is its new value.
  std::vector<std::pair<int, int>> updated_parameters;
};

struct BatchedModule {
  // Of a program for num_replicas / group_size cores.
  std::unique_ptr<xla::HloModule> module;
  int group_size = 1;
  // By number. The parameters that are no batches must be equal for all replicas; results that are
  // no batches belong to all of them.
  std::vector<bool> batched_parameters;
  std::vector<bool> batched_results;
};

// `module` is the program of one replica, with a tuple of arrays as its result, and holds nothing
// that it doesn't need, as xla::HloDCE leaves it. An error says what of it must run for each
// replica alone.
absl::StatusOr<BatchedModule> BatchReplicas(const xla::HloModule& module,
                                            const BatchOptions& options);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCH_REPLICAS_H_
