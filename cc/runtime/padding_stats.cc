#include "cc/runtime/padding_stats.h"

namespace tf_tpu_ext {
void PaddingStats::Count(int64_t program_id, absl::Span<const PaddedArgument> padded,
                         const Arguments& arguments) {
  absl::MutexLock lock(&mutex_);
  int64_t elements = 0;
  int64_t real_elements = 0;
  for (const PaddedArgument& each : padded) {
    if (!arguments.Has(each.argument)) continue;
    const int64_t padded_elements = arguments[each.argument].NumElements();
    const int64_t true_elements = TrueShape(each, arguments).num_elements();
    elements += padded_elements;
    real_elements += true_elements;
    const auto key = std::make_pair(program_id, each.argument);
    if (inputs_.size() >= kMostInputs && inputs_.count(key) == 0) continue;
    PaddingTotals& totals = inputs_[key];
    totals.elements += padded_elements;
    totals.padding += padded_elements - true_elements;
  }
  elements_.fetch_add(elements, std::memory_order_relaxed);
  padding_.fetch_add(elements - real_elements, std::memory_order_relaxed);
}

PaddingTotals PaddingStats::Totals() const {
  return {elements_.load(std::memory_order_relaxed), padding_.load(std::memory_order_relaxed)};
}

std::vector<PaddedInput> PaddingStats::Inputs() const {
  absl::MutexLock lock(&mutex_);
  std::vector<PaddedInput> inputs;
  for (const auto& [key, totals] : inputs_) inputs.push_back({key.first, key.second, totals});
  return inputs;
}

}  // namespace tf_tpu_ext
