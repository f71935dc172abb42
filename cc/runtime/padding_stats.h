// Counts how much of the data that cores received was padding.
#ifndef TF_TPU_EXT_CC_RUNTIME_PADDING_STATS_H_
#define TF_TPU_EXT_CC_RUNTIME_PADDING_STATS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "cc/program/padded_argument.h"
#include "cc/program/value_numbers.h"

namespace tf_tpu_ext {

struct PaddingTotals {
  // Elements of arguments that may be padded, including the padding.
  int64_t elements = 0;
  int64_t padding = 0;
};

// The same for one argument.
struct PaddedInput {
  int64_t program_id = 0;
  ArgumentNumber argument;
  PaddingTotals totals;
};

// Thread-safe. Readers may see a run's elements before its padding.
class PaddingStats {
 public:
  // Further inputs count only toward the totals.
  static constexpr size_t kMostInputs = 10'000;

  // Adds the arguments of one core's run to the totals.
  void Count(int64_t program_id, absl::Span<const PaddedArgument> padded,
             const Arguments& arguments);
  PaddingTotals Totals() const;
  // Sorted by program and argument.
  std::vector<PaddedInput> Inputs() const;

 private:
  std::atomic<int64_t> elements_{0};
  std::atomic<int64_t> padding_{0};
  mutable absl::Mutex mutex_;
  std::map<std::pair<int64_t, ArgumentNumber>, PaddingTotals> inputs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_PADDING_STATS_H_
