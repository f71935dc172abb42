#include "cc/runtime/padding_stats.h"

#include <algorithm>
#include <optional>

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

std::optional<int64_t> SizeIn(const Tensor& size) {
  if (size.NumElements() != 1) return std::nullopt;
  if (size.dtype() == tensorflow::DT_INT32) return size.flat<int32_t>()(0);
  if (size.dtype() == tensorflow::DT_INT64) return size.flat<int64_t>()(0);
  return std::nullopt;
}

}  // namespace

void PaddingStats::Count(int64_t program_id, absl::Span<const PaddedArgument> padded,
                         const Arguments& arguments) {
  absl::MutexLock lock(&mutex_);
  int64_t elements = 0;
  int64_t real_elements = 0;
  for (const PaddedArgument& each : padded) {
    if (!arguments.Has(each.argument)) continue;
    tensorflow::TensorShape real = arguments[each.argument].shape();
    for (const auto& [dimension, size_argument] : each.sizes) {
      if (dimension >= real.dims() || !arguments.Has(size_argument)) continue;
      if (const auto size = SizeIn(arguments[size_argument]); size.has_value()) {
        real.set_dim(dimension, std::clamp<int64_t>(*size, 0, real.dim_size(dimension)));
      }
    }
    const int64_t padded_elements = arguments[each.argument].NumElements();
    elements += padded_elements;
    real_elements += real.num_elements();
    const auto key = std::make_pair(program_id, each.argument);
    if (inputs_.size() >= kMostInputs && inputs_.count(key) == 0) continue;
    PaddingTotals& totals = inputs_[key];
    totals.elements += padded_elements;
    totals.padding += padded_elements - real.num_elements();
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
