// Turns waits that last too long into errors. One thread watches all waits of the process.
#ifndef TF_TPU_EXT_CC_BASE_WAIT_MONITOR_H_
#define TF_TPU_EXT_CC_BASE_WAIT_MONITOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tf_tpu_ext {

class WaitMonitor {
 public:
  using WaitId = int64_t;

  // `limit` is asked at the start of every wait.
  explicit WaitMonitor(std::function<absl::Duration()> limit);
  ~WaitMonitor();

  // Calls `expired(waited)` on the monitor's thread unless the wait ends before the limit.
  WaitId Begin(std::function<void(absl::Duration waited)> expired);

  // Ends a wait. A call of `expired` that is under way is not waited for.
  void End(WaitId id);

  // The process's monitor, with the machine's wait limit.
  static WaitMonitor& Get();

 private:
  struct Wait {
    absl::Duration limit;
    std::function<void(absl::Duration)> expired;
  };

  void Run();

  const std::function<absl::Duration()> limit_;
  absl::Mutex mutex_;
  WaitId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Ordered by deadline.
  std::map<std::pair<absl::Time, WaitId>, Wait> waits_ ABSL_GUARDED_BY(mutex_);
  std::map<WaitId, absl::Time> deadlines_ ABSL_GUARDED_BY(mutex_);
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_WAIT_MONITOR_H_
