// The calls that one core of a running program makes on the host, one after another.
#ifndef TF_TPU_EXT_CC_TRANSFER_HOST_CALLS_H_
#define TF_TPU_EXT_CC_TRANSFER_HOST_CALLS_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cc/base/core_threads.h"
#include "cc/base/wait_monitor.h"
#include "cc/transfer/host_functions.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

// The program's thread calls MayRunNow, RunNow and Start, one after another; the launch calls
// WhenIdle and Abort, on any thread. One host thread at a time makes calls, and holds a reference
// while it does. No callback is called under the lock.
class HostCalls : public std::enable_shared_from_this<HostCalls> {
 public:
  using Done = HostFunctions::Done;

  // `fail` is called if a call whose results nothing waits for fails.
  HostCalls(std::shared_ptr<HostFunctions> functions, int slot, CoreThreads* host_threads,
            WaitMonitor* wait_monitor, std::function<void(const absl::Status&)> fail);
  ~HostCalls();

  // Whether a call may use the calling thread, and the program's memory, until it returns. The
  // program makes one call at a time, so this stays true until the next Start.
  bool MayRunNow(int function) const;
  absl::Status RunNow(int function, absl::Span<const tensorflow::Tensor> inputs,
                      std::vector<tensorflow::Tensor>* outputs);

  // Makes the call after the previous ones. `done` may be null: the program then continues in the
  // meantime, and the call may begin a little later, together with others.
  void Start(int function, std::vector<tensorflow::Tensor> inputs, Done done);

  const std::string& NameOf(int function) const { return functions_->name(function); }

  // The Python line that made the function; empty if unknown.
  const std::string& SourceOf(int function) const { return functions_->source(function); }

  // Counts the time that a call for which the program does not wait has cost it.
  void CountSending(int function, absl::Duration time) const;

  // Calls `idle` once no calls are left; on this thread if there are none now.
  void WhenIdle(std::function<void()> idle);

  // The program has failed: ends the waits for results, cancels the running call and drops those
  // that have not begun.
  void Abort(const absl::Status& status);

 private:
  struct Call {
    int function = 0;
    std::vector<tensorflow::Tensor> inputs;
    int64_t bytes_to_host = 0;
    // Used only for calls for which the program waits.
    Done done;
    absl::Time asked;
    WaitMonitor::WaitId wait = 0;
  };

  // Makes the calls on this thread, unless another thread does.
  void Work(bool expected);
  // Makes calls until none are left, or the thread has something better to do.
  void MakeCalls();
  // Ends the running call. Returns whether this thread should continue with the next one.
  bool Finish(absl::StatusOr<std::vector<tensorflow::Tensor>> outputs);
  // The program has waited too long for a result.
  void Expired(int function, absl::Duration waited);
  // It is time to check on the calls that nothing waits for.
  void Watched(absl::Duration waited);
  void WatchRunning() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TooLong(int function, int running, absl::Duration waited) const;
  // The error with the location of the cluster.
  absl::Status Explained(int function, const absl::Status& status) const;
  void Count(const Call& call, absl::Time began,
             const std::vector<tensorflow::Tensor>& outputs) const;

  const std::shared_ptr<HostFunctions> functions_;
  const int slot_;
  CoreThreads& host_threads_;
  WaitMonitor& wait_monitor_;
  const std::function<void(const absl::Status&)> fail_;
  const std::shared_ptr<tensorflow::CancellationManager> cancellation_;

  mutable absl::Mutex mutex_;
  // Calls that have not begun.
  std::deque<Call> calls_ ABSL_GUARDED_BY(mutex_);
  // Whether a thread is making calls: it alone takes them from `calls_` and sets `running_` and
  // `began_`. After an abort, which takes the running call away, no more calls are made, and this
  // does not change.
  bool working_ ABSL_GUARDED_BY(mutex_) = false;
  Call running_ ABSL_GUARDED_BY(mutex_);
  absl::Time began_ ABSL_GUARDED_BY(mutex_);
  // Whether a thread will soon come to make calls.
  bool expected_ ABSL_GUARDED_BY(mutex_) = false;
  // Watches running calls that nothing waits for: one watch for a whole sequence of calls, since
  // the monitor costs more than a short call. 0 if there is none.
  WaitMonitor::WaitId watch_ ABSL_GUARDED_BY(mutex_) = 0;
  // The callback that WhenIdle has left; called once, by the thread that finds no call left or by
  // Abort.
  std::function<void()> idle_ ABSL_GUARDED_BY(mutex_);
  // Never OK again after Abort. A thread that has run a call checks this before it touches anything
  // else.
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_HOST_CALLS_H_
