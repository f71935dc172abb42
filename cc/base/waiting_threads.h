// Threads for work that waits for other work midway.
#ifndef TF_TPU_EXT_CC_BASE_WAITING_THREADS_H_
#define TF_TPU_EXT_CC_BASE_WAITING_THREADS_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "tensorflow/core/platform/env.h"

namespace tf_tpu_ext {

// Keeps `num_working` threads working, not counting those that wait: while one waits, another works
// in its place. So there are `num_working` threads, plus as many as have ever waited at once.
class WaitingThreads {
 public:
  WaitingThreads(int num_working, size_t stack_bytes);
  // Finishes all work first.
  ~WaitingThreads();

  void Schedule(std::function<void()> work);
  // Calls `wait`, which may block until other work is done. The caller may be any thread.
  void Wait(absl::FunctionRef<void()> wait);
  // Whether the calling thread is one of these.
  bool IsCaller() const;
  int NumWorking() const { return num_working_; }
  // A number below `num_working` that no other thread has at the same time; -1 for a thread that
  // has waited in its present work, and for any that is not one of these.
  int Slot() const;

 private:
  // Puts one more thread to work if there is work and fewer than `num_working_` are working.
  void AddWorker() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work();
  void FreeSlot() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int num_working_;
  const size_t stack_bytes_;
  absl::Mutex mutex_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  // Threads that work or have been woken to work. More than `num_working_` when waits have just
  // ended.
  int working_ ABSL_GUARDED_BY(mutex_) = 0;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  int idle_ ABSL_GUARDED_BY(mutex_) = 0;
  // How many idle threads have been woken but have not noticed yet.
  int woken_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<int> free_slots_ ABSL_GUARDED_BY(mutex_);
  absl::CondVar wake_;
  std::vector<std::unique_ptr<tensorflow::Thread>> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_WAITING_THREADS_H_
