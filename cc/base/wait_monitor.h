// Turns waits that last too long into errors. One thread watches all waits in the process.
#ifndef TF_TPU_EXT_CC_BASE_WAIT_MONITOR_H_
#define TF_TPU_EXT_CC_BASE_WAIT_MONITOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tf_tpu_ext {

// Ends the error of every expired wait: what else the reader can do.
inline constexpr absl::string_view kRaiseWaitLimit =
    "raise the limit with tf_tpu_ext.configure(wait_limit_seconds=...).";

// Thread-safe; may be called from `expired`. Its thread starts with the first wait. Tests replace
// the virtual functions.
class WaitMonitor {
 public:
  // Counts from 1; 0 is no wait.
  using WaitId = int64_t;

  // `limit` is called at the start of every wait. `run` runs the callbacks of expired waits, which
  // may end ops and start others. It should run them on other threads than the caller's, so that
  // all other waits are still watched in the meantime. Without it, the monitor's thread runs them.
  explicit WaitMonitor(std::function<absl::Duration()> limit,
                       std::function<void(std::function<void()>)> run = nullptr);
  virtual ~WaitMonitor();

  // Begins a wait. Unless it ends before the limit, `expired(waited)` runs, with no lock held.
  virtual WaitId Begin(std::function<void(absl::Duration waited)> expired);

  // Ends a wait, unless it has ended. Does not wait for a call of `expired` that is in progress.
  virtual void End(WaitId id);

 private:
  struct Wait {
    absl::Duration limit;
    std::function<void(absl::Duration)> expired;
  };

  void Run();

  const std::function<absl::Duration()> limit_;
  const std::function<void(std::function<void()>)> run_;
  // Never held while `expired` runs.
  absl::Mutex mutex_;
  WaitId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Ordered by deadline.
  std::map<std::pair<absl::Time, WaitId>, Wait> waits_ ABSL_GUARDED_BY(mutex_);
  std::map<WaitId, absl::Time> deadlines_ ABSL_GUARDED_BY(mutex_);
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  // Written under the lock by the first wait, joined by the destructor.
  std::thread thread_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_WAIT_MONITOR_H_
