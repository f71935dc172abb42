// How instructions compute for several replicas at once.
#ifndef TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCHING_RULES_H_
#define TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCHING_RULES_H_

#include <optional>
#include <vector>

#include "cc/compiler/replicas/batched_computation.h"
#include "xla/service/hlo.pb.h"

namespace tf_tpu_ext {

// Adds what computes the instruction for all replicas: it has no effects and calls reducers and
// comparators at most. `operands` are its operands' arrays. Nothing if the replicas have to be
// computed one by one.
std::optional<std::vector<StackedValue>> StackForAll(const xla::HloInstructionProto& instruction,
                                                     const std::vector<StackedValue>& operands,
                                                     StackedComputation* out);

// Adds what computes the sum over the replicas of what the instruction makes, without making it for
// each of them. `from_zero` tells of a reduction or scatter that it adds, beginning with zero.
// Nothing if there is no such way.
std::optional<StackedValue> SumOfReplicas(const xla::HloInstructionProto& summed,
                                          const std::vector<StackedValue>& operands, bool from_zero,
                                          StackedComputation* out);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCHING_RULES_H_
