#include "cc/transfer/host_order.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/platform/env.h"
#include "tsl/platform/fingerprint.h"

namespace tf_tpu_ext {
namespace {

constexpr uint64_t kLongestWait = 2000;  // microseconds

}  // namespace

absl::Duration HostOrder::Wait(Slot slot, int64_t call) const {
  const uint64_t drawn =
      tsl::Fingerprint64(absl::StrCat(seed_, "/", step_, "/", slot.value(), "/", call));
  return drawn % 4 == 0 ? absl::ZeroDuration() : absl::Microseconds(drawn / 4 % kLongestWait);
}

void HostOrder::Later(Slot slot, std::function<void()> call) {
  const absl::Duration wait = Wait(slot, calls_.fetch_add(1, std::memory_order_relaxed));
  tensorflow::Env::Default()->SchedClosureAfter(absl::ToInt64Microseconds(wait), std::move(call));
}

void HostOrder::Note(Slot slot, const std::string& function) {
  absl::MutexLock lock(&mutex_);
  callers_[function].insert(slot);
}

std::map<std::string, std::set<Slot>> HostOrder::callers() const {
  absl::MutexLock lock(&mutex_);
  return callers_;
}

}  // namespace tf_tpu_ext
