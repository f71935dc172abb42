// How much of what the cores got was padding.
#ifndef TF_TPU_EXT_CC_RUNTIME_PADDING_STATS_H_
#define TF_TPU_EXT_CC_RUNTIME_PADDING_STATS_H_

#include <atomic>
#include <cstdint>

#include "absl/types/span.h"
#include "cc/program/padded_argument.h"
#include "cc/program/value_numbers.h"

namespace tf_tpu_ext {

struct PaddingTotals {
  // Of arguments that may be padded, padding included.
  int64_t elements = 0;
  int64_t padding = 0;
};

// Thread-safe. Readers may see the elements of a run before its padding.
class PaddingStats {
 public:
  // Adds the arguments of one core's run to the totals.
  void Count(absl::Span<const PaddedArgument> padded, const Arguments& arguments);
  PaddingTotals Totals() const;

 private:
  std::atomic<int64_t> elements_{0};
  std::atomic<int64_t> padding_{0};
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_PADDING_STATS_H_
