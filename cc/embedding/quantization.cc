#include "cc/embedding/quantization.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace tf_tpu_ext {

using tensorflow::tpu::SimulatedQuantization;

absl::Status CheckQuantization(const std::string& table, const SimulatedQuantization& options) {
  if (!options.enabled()) return absl::OkStatus();
  const auto& limits = options.clipping_limits();
  if (options.num_buckets() < 2 || !limits.has_lower() || !limits.has_upper() ||
      limits.lower().value() >= limits.upper().value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("The simulated quantization of embedding table '", table,
                     "' needs at least two buckets, and a lower and a higher limit; got ",
                     options.ShortDebugString(), "."));
  }
  return absl::OkStatus();
}

float Quantize(const SimulatedQuantization& options, float value) {
  const float lower = options.clipping_limits().lower().value();
  const float upper = options.clipping_limits().upper().value();
  const float quantum = (upper - lower) / (options.num_buckets() - 1);
  const float clipped = std::min(std::max(value, lower), upper);
  return std::floor((clipped - lower) / quantum + 0.5f) * quantum + lower;
}

}  // namespace tf_tpu_ext
