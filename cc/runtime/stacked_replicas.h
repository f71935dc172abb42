// Runs several replicas of a step as one program.
#ifndef TF_TPU_EXT_CC_RUNTIME_STACKED_REPLICAS_H_
#define TF_TPU_EXT_CC_RUNTIME_STACKED_REPLICAS_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

class Program;

// Runs groups of a program's replicas, each group as one (cc/compiler/replicas/batch_replicas.h).
struct StackedReplicas {
  // Its replicas are the groups.
  std::shared_ptr<Program> program;
  int group_size = 1;
  // By argument and by output of the step: whether it has a first dimension for the replicas of a
  // group. The others belong to all replicas.
  std::vector<bool> stacked_arguments;
  std::vector<bool> stacked_outputs;
  // Arguments that must be equal for all replicas.
  std::vector<int> mirrored_arguments;
  // Compiles the program of one replica.
  std::function<absl::StatusOr<std::shared_ptr<Program>>()> build_alone;
};

// The arguments of each replica of a step, or of a group.
using ReplicaArguments = absl::Span<const std::vector<tensorflow::Tensor>* const>;

// Whether all replicas of the step may run in groups: what has to be equal is.
bool CanRunStacked(const StackedReplicas& stacked, ReplicaArguments replicas);

// The arguments of a group's program. An error if the host has no memory for them.
absl::StatusOr<std::vector<tensorflow::Tensor>> StackArguments(const StackedReplicas& stacked,
                                                               ReplicaArguments group);

// The outputs of each replica of a group.
absl::StatusOr<std::vector<std::vector<tensorflow::Tensor>>> UnstackOutputs(
    const StackedReplicas& stacked, const std::vector<tensorflow::Tensor>& outputs);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_STACKED_REPLICAS_H_
