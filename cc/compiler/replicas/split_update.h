// Splits what all replicas of a step compute alike off the program of one replica.
//
// The replicas of a training step sum their gradients, and then each computes the same new values
// of the same variables. On one host one of them is enough. What follows the sums is cut off as a
// program of its own, the update, which runs once when all replicas have ended: there are no sums
// left in the replica's program, and none of its cores waits for another.
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
  // Its results: those of the whole that are `replica_results`, then the values to be combined.
  std::unique_ptr<xla::HloModule> replica;
  // Its parameters: those of the whole, then for each combination the combined value, or, if it
  // adds them up itself, the values of all replicas.
  std::unique_ptr<xla::HloModule> update;
  // Numbers of the whole's results, in the order of the parts'.
  std::vector<int> replica_results;
  std::vector<int> update_results;
  std::vector<Combination> combinations;
  // How many of the update's parameters are not the whole's.
  int num_combined_values = 0;
  // The parameters of the whole that the update reads.
  std::vector<int> update_parameters;
};

// `module` returns a tuple, runs on `num_replicas` cores and holds nothing that its results don't
// need, as xla::HloDCE leaves it. `mirrored_parameters` are expected to have one value for all
// replicas: beside combined values the update reads only these, and scalars. Nothing is returned if
// no value that the replicas combine serves the update alone.
absl::StatusOr<std::optional<SplitProgram>> SplitUpdate(
    const xla::HloModule& module, int num_replicas, const std::vector<int>& mirrored_parameters);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_REPLICAS_SPLIT_UPDATE_H_
