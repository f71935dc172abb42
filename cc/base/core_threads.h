// The threads on which TensorFlow schedules the ops of the cores.
#ifndef TF_TPU_EXT_CC_BASE_CORE_THREADS_H_
#define TF_TPU_EXT_CC_BASE_CORE_THREADS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/threadpool_interface.h"

namespace tf_tpu_ext {

// Ops of the cores must not run on the host's inter-op threads: when an iterator is destroyed in
// such an op, it blocks its thread until functions on the host have ended, and with as many cores
// as inter-op threads, none would be left for those functions.
//
// All cores share these threads. Usually as many work as there are processors; more are started
// only when all of them are blocked. So many cores cost no more threads and wake-ups than a few.
class CoreThreads : public tensorflow::thread::ThreadPoolInterface {
 public:
  struct Options {
    // How many threads work as long as none is blocked.
    int usual_threads = 1;
    int max_threads = 1;
    // The working threads count as blocked after this long without progress.
    absl::Duration patience = absl::Milliseconds(5);
    // For how long after that new work gets a thread immediately.
    absl::Duration generosity = absl::Milliseconds(100);
    // How long work that is not urgent waits for a thread.
    absl::Duration delay = absl::Microseconds(500);
  };

  explicit CoreThreads(const Options& options);
  // Finishes all work first.
  ~CoreThreads() override;

  void Schedule(std::function<void()> work) override;
  // The same, for work that the calling thread, if it is one of these, does once its current work
  // returns. If that does not return, another thread does it.
  void ScheduleAfterCurrent(std::function<void()> work);
  // The same, for work that is not urgent: usually another thread wakes the one that does it, which
  // saves the caller microseconds.
  void ScheduleSoon(std::function<void()> work);
  int NumThreads() const override { return options_.max_threads; }
  // The CoreThreads that the calling thread belongs to; null for any other thread.
  static CoreThreads* OfCaller();
  // The index of the calling thread among these; -1 for other threads.
  int CurrentThreadId() const override;

 private:
  void StartThread(const char* name, std::function<void()> body)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ensures that queued work gets a thread even if all working threads are blocked.
  void WatchProgress() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasQueued() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !queue_.empty() || !continued_.empty();
  }
  // Puts one more thread to work, unless all of them are working.
  void AddWorker() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work(int id);
  void Watch();

  const Options options_;
  absl::Mutex mutex_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  // Work that continues the current work of some thread: it takes precedence over the queue.
  std::deque<std::function<void()>> continued_ ABSL_GUARDED_BY(mutex_);
  int workers_ ABSL_GUARDED_BY(mutex_) = 0;
  int working_ ABSL_GUARDED_BY(mutex_) = 0;
  int idle_ ABSL_GUARDED_BY(mutex_) = 0;
  int wakes_ ABSL_GUARDED_BY(mutex_) = 0;
  // How many items of each were begun. They are counted separately, because work that continues
  // itself forever is no progress for the queue.
  int64_t queue_begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t continued_begun_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time generous_until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // Whether the watching thread looks for progress.
  bool watching_ ABSL_GUARDED_BY(mutex_) = false;
  // For how many more rounds it looks after `delay` instead of `patience`.
  int quick_rounds_ ABSL_GUARDED_BY(mutex_) = 0;
  bool has_watcher_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::CondVar work_added_;
  absl::CondVar watch_;
  std::vector<std::unique_ptr<tensorflow::Thread>> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_CORE_THREADS_H_
