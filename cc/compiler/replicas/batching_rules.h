// Rules that compute instructions for several replicas at once.
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

// Adds instructions that compute `instruction` for all replicas. It has no side effects and calls
// at most reducers and comparators. `operands` are its operands' arrays, at least one of which is a
// batch. Returns nothing if the replicas have to be computed one by one.
std::optional<BatchedValues> BatchInstruction(const xla::HloInstruction& instruction,
                                              const BatchedValues& operands,
                                              BatchedComputation* out);

// Adds instructions that compute the sum of the replicas' values of `summed` without computing each
// of them. `from_zero` says that it is a reduction or scatter that adds to zero. Returns nothing if
// that is impossible.
std::optional<BatchedValue> SumOfReplicas(const xla::HloInstruction& summed,
                                          const BatchedValues& operands, bool from_zero,
                                          BatchedComputation* out);

// For matrix products, convolutions and kernels that compute them. Used by BatchInstruction().
std::optional<BatchedValues> BatchDot(BatchedComputation& out, const xla::HloInstruction& dot,
                                      const BatchedValues& operands);
std::optional<BatchedValues> BatchConvolution(BatchedComputation& out,
                                              const xla::HloInstruction& convolution,
                                              const BatchedValues& operands);
std::optional<BatchedValues> BatchKernelCall(BatchedComputation& out,
                                             const xla::HloInstruction& call,
                                             const BatchedValues& operands);
// The sum over the replicas of what a kernel computes, if it sums over its batch.
std::optional<BatchedValue> SumOfKernelCalls(BatchedComputation& out,
                                             const xla::HloInstruction& call,
                                             const BatchedValues& operands);

// Renumbers dimensions for a new first dimension. ShiftAndPrepend() and ShiftedAndPrepended() also
// add the new dimension in front.
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
