// Turns the programs of several replicas into one.
//
// If there are more replicas than processors, each replica's ops are small, and each replica holds
// its own gradients and intermediate values. Here a group of replicas runs as one program, whose
// arrays have a leading dimension for the replicas. The product of all their rows with the same
// weights becomes one product, and gradients are summed where they are computed. Whatever is the
// same for all replicas, such as mirrored variables, keeps its shape and is computed once. This is
// what jax.vmap does, with a batching rule for each kind of instruction (batching_rules.h).
// Instructions without a rule are computed for one replica after another.
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
  // The number of replicas in a group, a divisor of `num_replicas`.
  int group_size = 1;
  // Parameters that should be equal for all replicas, as variables are.
  std::vector<int> mirrored_parameters;
  // Variables: the numbers of a parameter and of the result that is its new value.
  std::vector<std::pair<int, int>> updated_parameters;
};

struct BatchedModule {
  // A program for num_replicas / group_size cores.
  std::unique_ptr<xla::HloModule> module;
  int group_size = 1;
  // By number. Parameters that are not batched must be equal for all replicas. Results that are not
  // batched belong to all replicas.
  std::vector<bool> batched_parameters;
  std::vector<bool> batched_results;
};

// `module` is the program of one replica. Its result is a tuple of arrays, and it contains no dead
// code, as after xla::HloDCE. An error says what must run separately for each replica.
absl::StatusOr<BatchedModule> BatchReplicas(const xla::HloModule& module,
                                            const BatchOptions& options);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCH_REPLICAS_H_
