#include "cc/check/value_summary.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace tf_tpu_ext {
namespace {

// When repeated, a NaN in every floating-point type; XLA's code makes different NaNs.
constexpr uint16_t kFiller = 0xFFFD;

template <typename Bits>
constexpr Bits Filler() {
  Bits filler = 0;
  for (size_t filled = 0; filled < sizeof(Bits); filled += sizeof(kFiller)) {
    filler = static_cast<Bits>(static_cast<uint64_t>(filler) << 16 | kFiller);
  }
  return filler;
}

// Ignoring the sign, numbers are in the same order as their bits: finite ones first, then infinity,
// then NaN.
template <typename Bits>
Worst WorstOf(const void* data, size_t bytes, int mantissa_bits) {
  const Bits without_sign = std::numeric_limits<Bits>::max() >> 1;
  const Bits infinity = (without_sign >> mantissa_bits) << mantissa_bits;
  const auto* const numbers = static_cast<const Bits*>(data);
  Bits greatest = 0;
  bool unwritten = false;
  for (size_t i = 0; i < bytes / sizeof(Bits); ++i) {
    const Bits number = numbers[i] & without_sign;
    greatest = std::max(greatest, number);
    unwritten |= number == (Filler<Bits>() & without_sign);
  }
  if (unwritten) return Worst::kUnwritten;
  if (greatest < infinity) return Worst::kFinite;
  return greatest == infinity ? Worst::kInfinity : Worst::kNan;
}

Worst WorstOf(tensorflow::DataType type, const void* data, size_t bytes) {
  switch (type) {
    case tensorflow::DT_FLOAT:
    case tensorflow::DT_COMPLEX64:
      return WorstOf<uint32_t>(data, bytes, 23);
    case tensorflow::DT_DOUBLE:
    case tensorflow::DT_COMPLEX128:
      return WorstOf<uint64_t>(data, bytes, 52);
    case tensorflow::DT_BFLOAT16:
      return WorstOf<uint16_t>(data, bytes, 7);
    case tensorflow::DT_HALF:
      return WorstOf<uint16_t>(data, bytes, 10);
    default:
      return Worst::kFinite;
  }
}

}  // namespace

ValueSummary Summarize(const tensorflow::Tensor& value) {
  const size_t bytes = value.TotalBytes();
  if (bytes == 0) return {};
  const auto* const data = static_cast<const char*>(value.data());
  return {absl::HashOf(absl::string_view(data, bytes)), WorstOf(value.dtype(), data, bytes)};
}

void FillAsUnwritten(tensorflow::DataType type, void* data, size_t bytes) {
  if (type == tensorflow::DT_BOOL) {
    if (bytes > 0) std::memset(data, 1, bytes);
    return;
  }
  auto* const words = static_cast<uint16_t*>(data);
  std::fill_n(words, bytes / sizeof(kFiller), kFiller);
  if (bytes % sizeof(kFiller) != 0) static_cast<uint8_t*>(data)[bytes - 1] = 0xFF;
}

}  // namespace tf_tpu_ext
