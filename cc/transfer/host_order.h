// Lets the calls that the cores of a watched step make on the host come in changing orders.
#ifndef TF_TPU_EXT_CC_TRANSFER_HOST_ORDER_H_
#define TF_TPU_EXT_CC_TRANSFER_HOST_ORDER_H_

#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "cc/base/core_numbers.h"

namespace tf_tpu_ext {

// Nothing is promised of the order of different cores: each call waits for a random time. The calls
// of one core stay in order, for a core makes the next one only when the last has been made.
// Thread-safe.
class HostOrder {
 public:
  // A core's call waits as long in every step of the same number and seed.
  HostOrder(uint64_t seed, int64_t step) : seed_(seed), step_(step) {}

  // Does `call` later, on some thread.
  void Later(Slot slot, std::function<void()> call);

  // How long the call of that number waits: up to two milliseconds, some not at all.
  absl::Duration Wait(Slot slot, int64_t call) const;

 private:
  const uint64_t seed_;
  const int64_t step_;
  std::atomic<int64_t> calls_{0};
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_HOST_ORDER_H_
