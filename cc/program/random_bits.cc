#include "cc/program/random_bits.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cc/base/custom_call.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/lib/random/philox_random.h"
#include "xla/ffi/api/c_api.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::random::PhiloxRandom;

// The state is a key and a counter; if it has two numbers, the key is also the counter's upper
// half.
PhiloxRandom GeneratorOf(absl::Span<const uint64_t> state) {
  const uint64_t counter_low = state[1];
  const uint64_t counter_high = state[state.size() == 2 ? 0 : 2];
  PhiloxRandom::Key key;
  key[0] = static_cast<uint32_t>(state[0]);
  key[1] = static_cast<uint32_t>(state[0] >> 32);
  PhiloxRandom::ResultType counter;
  counter[0] = static_cast<uint32_t>(counter_low);
  counter[1] = static_cast<uint32_t>(counter_low >> 32);
  counter[2] = static_cast<uint32_t>(counter_high);
  counter[3] = static_cast<uint32_t>(counter_high >> 32);
  return PhiloxRandom(counter, key);
}

void Fill(PhiloxRandom generator, absl::Span<uint32_t> words) {
  while (!words.empty()) {
    const PhiloxRandom::ResultType block = generator();
    const size_t count = std::min<size_t>(words.size(), PhiloxRandom::kResultElementCount);
    std::copy_n(&block[0], count, words.begin());
    words.remove_prefix(count);
  }
}

class RandomBits : public CustomCall {
 public:
  absl::Status Execute(XLA_FFI_CallFrame* frame) const override {
    const auto& states = *static_cast<const XLA_FFI_Buffer*>(frame->args.args[0]);
    const auto& bits = *static_cast<const XLA_FFI_Buffer*>(frame->rets.rets[0]);
    if (states.rank == 0 || states.dtype != XLA_FFI_DataType_U64) return Damaged();
    const int64_t length = states.dims[states.rank - 1];
    const int64_t numbers = ShapeOf(states).num_elements();
    const int64_t bytes_each = SizeOf(bits.dtype);
    if ((length != 2 && length != 3) || bytes_each == 0) return Damaged();
    const int64_t rows = numbers / length;
    const int64_t words = ShapeOf(bits).num_elements() * bytes_each / sizeof(uint32_t);
    if (rows == 0) return words == 0 ? absl::OkStatus() : Damaged();
    if (words % rows != 0) return Damaged();
    const auto* state = static_cast<const uint64_t*>(states.data);
    auto* out = static_cast<uint32_t*>(bits.data);
    for (int64_t row = 0; row < rows; ++row) {
      Fill(GeneratorOf(absl::MakeConstSpan(state + row * length, length)),
           absl::MakeSpan(out + row * (words / rows), words / rows));
    }
    return absl::OkStatus();
  }

 private:
  // Zero for types that it does not generate.
  static int64_t SizeOf(XLA_FFI_DataType type) {
    switch (type) {
      case XLA_FFI_DataType_U32:
      case XLA_FFI_DataType_S32:
        return sizeof(uint32_t);
      case XLA_FFI_DataType_U64:
      case XLA_FFI_DataType_S64:
        return sizeof(uint64_t);
      default:
        return 0;
    }
  }

  static absl::Status Damaged() {
    return absl::InvalidArgumentError(
        "A call for random bits takes states of two or three uint64, and makes as many integers of "
        "32 "
        "or 64 bits of each. Its program is damaged: report this with the program.");
  }
};

absl::StatusOr<std::unique_ptr<CustomCall>> MakeRandomBits(const CallAttributes& /*attributes*/) {
  return std::make_unique<RandomBits>();
}

[[maybe_unused]] const bool kRandomBitsRegistered =
    RegisterCustomCall<MakeRandomBits>(kRandomBitsTarget);

}  // namespace
}  // namespace tf_tpu_ext
