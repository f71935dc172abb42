// How instructions compute for several replicas at once.
#ifndef TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCHING_RULES_H_
#define TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCHING_RULES_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "cc/compiler/replicas/batched_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {

// Adds what computes the instruction for all replicas: it has no effects and calls reducers and
// comparators at most. `operands` are its operands' arrays, at least one of them a batch. Nothing
// if the replicas have to be computed one by one.
std::optional<BatchedValues> BatchInstruction(const xla::HloInstruction& instruction,
                                              const BatchedValues& operands,
                                              BatchedComputation* out);

// Adds what computes the sum over the replicas of what the instruction makes, without making it for
// each of them. `from_zero` says that it is a reduction or scatter that adds, beginning with zero.
// Nothing if there is no such way.
std::optional<BatchedValue> SumOfReplicas(const xla::HloInstruction& summed,
                                          const BatchedValues& operands, bool from_zero,
                                          BatchedComputation* out);

// Of products, convolutions and kernels that compute them, for BatchInstruction().
std::optional<BatchedValues> BatchDot(BatchedComputation& out, const xla::HloInstruction& dot,
                                      const BatchedValues& operands);
std::optional<BatchedValues> BatchConvolution(BatchedComputation& out,
                                              const xla::HloInstruction& convolution,
                                              const BatchedValues& operands);
std::optional<BatchedValues> BatchKernelCall(BatchedComputation& out,
                                             const xla::HloInstruction& call,
                                             const BatchedValues& operands);
// The sum over the replicas of what a kernel computes that sums over its batch.
std::optional<BatchedValue> SumOfKernelCalls(BatchedComputation& out,
                                             const xla::HloInstruction& call,
                                             const BatchedValues& operands);

// Numbers of dimensions when there is a new first one: as they are then, and with the new one
// before them.
template <typename Numbers>
void ShiftByOne(Numbers* numbers) {
  for (auto& number : *numbers) ++number;
}

template <typename Numbers>
void ShiftAndPrepend(Numbers* numbers) {
  Numbers shifted;
  shifted.Add(0);
  for (auto number : *numbers) shifted.Add(number + 1);
  *numbers = std::move(shifted);
}

std::vector<int64_t> ShiftedByOne(absl::Span<const int64_t> numbers);
std::vector<int64_t> ShiftedAndPrepended(absl::Span<const int64_t> numbers);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCHING_RULES_H_
