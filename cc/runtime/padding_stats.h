// How much of what the cores got was padding.
#ifndef TF_TPU_EXT_CC_RUNTIME_PADDING_STATS_H_
#define TF_TPU_EXT_CC_RUNTIME_PADDING_STATS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "cc/program/padded_argument.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

struct PaddingTotals {
  // Of arguments that may be padded, padding included.
  int64_t elements = 0;
  int64_t padding = 0;
};

// Adds the arguments of one core's run to the totals of the process.
void CountPadding(absl::Span<const PaddedArgument> padded,
                  absl::Span<const tensorflow::Tensor> arguments);
PaddingTotals TotalPadding();

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_PADDING_STATS_H_
