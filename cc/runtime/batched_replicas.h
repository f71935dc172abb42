// Runs several replicas of a step as one program.
#ifndef TF_TPU_EXT_CC_RUNTIME_BATCHED_REPLICAS_H_
#define TF_TPU_EXT_CC_RUNTIME_BATCHED_REPLICAS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cc/program/batched_replicas.h"
#include "cc/program/value_numbers.h"

namespace tf_tpu_ext {

// The arguments of each replica of a step or of a group.
using ReplicaArguments = absl::Span<const Arguments* const>;

// Whether all replicas of the step may run in groups, because everything that must be equal is
// equal.
bool CanRunBatched(const BatchedReplicas& batched, ReplicaArguments replicas);

// The arguments of a group's program. An error if the host lacks the memory for them.
absl::StatusOr<Arguments> BatchArguments(const BatchedReplicas& batched, ReplicaArguments group);

// The outputs of each replica of a group.
absl::StatusOr<std::vector<Outputs>> UnbatchOutputs(const BatchedReplicas& batched,
                                                    const Outputs& outputs);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_BATCHED_REPLICAS_H_
