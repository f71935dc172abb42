// Varies the order in which the calls of a watched step's cores reach the host, and notes who
// calls.
#ifndef TF_TPU_EXT_CC_TRANSFER_HOST_ORDER_H_
#define TF_TPU_EXT_CC_TRANSFER_HOST_ORDER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cc/base/core_numbers.h"

namespace tf_tpu_ext {

// The order between different cores is undefined, so each call waits for a random time. The calls
// of one core stay in order, because a core makes the next one only after the previous one has been
// made. Thread-safe.
class HostOrder {
 public:
  // A core's call waits equally long in every step with the same number and seed.
  HostOrder(uint64_t seed, int64_t step) : seed_(seed), step_(step) {}

  // Runs `call` later, on some thread.
  void Later(Slot slot, std::function<void()> call);

  // Notes that a core calls a function.
  void Note(Slot slot, const std::string& function);

  // The cores that have called each function.
  std::map<std::string, std::set<Slot>> callers() const;

  // How long the call with that number waits: up to two milliseconds, or not at all.
  absl::Duration Wait(Slot slot, int64_t call) const;

 private:
  const uint64_t seed_;
  const int64_t step_;
  std::atomic<int64_t> calls_{0};
  mutable absl::Mutex mutex_;
  std::map<std::string, std::set<Slot>> callers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_HOST_ORDER_H_
