// For tests: waits that end when the test says so.
#ifndef TF_TPU_EXT_CC_BASE_WAIT_MONITOR_TESTING_H_
#define TF_TPU_EXT_CC_BASE_WAIT_MONITOR_TESTING_H_

#include <functional>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cc/base/wait_monitor.h"

namespace tf_tpu_ext {

// Thread-safe.
class FakeMonitor : public WaitMonitor {
 public:
  FakeMonitor() : WaitMonitor([] { return absl::InfiniteDuration(); }) {}

  WaitId Begin(std::function<void(absl::Duration)> expired) override {
    absl::MutexLock lock(&mutex_);
    waits_[++last_] = std::move(expired);
    return last_;
  }
  void End(WaitId id) override {
    absl::MutexLock lock(&mutex_);
    waits_.erase(id);
  }

  int num_waits() const {
    absl::MutexLock lock(&mutex_);
    return static_cast<int>(waits_.size());
  }

  // Makes all waits reach their limit.
  void Expire(absl::Duration waited = absl::Minutes(1)) {
    std::map<WaitId, std::function<void(absl::Duration)>> expired;
    {
      absl::MutexLock lock(&mutex_);
      expired.swap(waits_);
    }
    for (const auto& [id, wait] : expired) wait(waited);
  }

 private:
  mutable absl::Mutex mutex_;
  WaitId last_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<WaitId, std::function<void(absl::Duration)>> waits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_WAIT_MONITOR_TESTING_H_
