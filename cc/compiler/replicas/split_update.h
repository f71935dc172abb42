// Splits off what all replicas compute identically in a step.
//
// The replicas of a training step sum their gradients, and then each computes the same new values
// of the same variables. On one host, computing them once is enough. Whatever follows the sums
// becomes a separate program, the update, which runs once after all replicas have finished. The
// replica's program contains no sums any more, so none of its cores waits for another.
#ifndef TF_TPU_EXT_CC_COMPILER_REPLICAS_SPLIT_UPDATE_H_
#define TF_TPU_EXT_CC_COMPILER_REPLICAS_SPLIT_UPDATE_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "cc/program/shared_update.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

struct SplitProgram {
  // Its results are the original results in `replica_results`, followed by the values to combine.
  std::unique_ptr<xla::HloModule> replica;
  // Its parameters are the original ones, followed by the combined value of each combination, or by
  // the values of all replicas if the update adds them up itself.
  std::unique_ptr<xla::HloModule> update;
  // Numbers of the original results, in the order of each part's results.
  std::vector<int> replica_results;
  std::vector<int> update_results;
  std::vector<Combination> combinations;
  // The number of the update's parameters that are not original ones.
  int num_combined_values = 0;
  // The original parameters that the update reads.
  std::vector<int> update_parameters;
};

// `module` returns a tuple, runs on `num_replicas` cores, and contains no dead code, as after
// xla::HloDCE. `mirrored_parameters` should have the same value on all replicas. Besides combined
// values, the update reads only these and scalars. Returns nothing if no value that the replicas
// combine is used by the update alone.
absl::StatusOr<std::optional<SplitProgram>> SplitUpdate(
    const xla::HloModule& module, int num_replicas, const std::vector<int>& mirrored_parameters);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_REPLICAS_SPLIT_UPDATE_H_
