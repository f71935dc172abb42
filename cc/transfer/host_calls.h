// The calls that one core of a running program makes on the host, one after the other.
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

// The thread of the program calls MayRunNow, RunNow and Start, one after the other; the launch
// WhenIdle and Abort, on any thread. Calls are made on the host's threads by one thread at a time,
// which holds a reference meanwhile. No callback is called under the lock.
class HostCalls : public std::enable_shared_from_this<HostCalls> {
 public:
  using Done = HostFunctions::Done;

  // `fail` is called when a call fails whose results nobody waits for.
  HostCalls(std::shared_ptr<HostFunctions> functions, int slot, CoreThreads* host_threads,
            WaitMonitor* wait_monitor, std::function<void(const absl::Status&)> fail);
  ~HostCalls();

  // Whether a call may use the calling thread, and the program's memory, until it returns. The
  // program makes one call at a time, so it stays true until the next Start.
  bool MayRunNow(int function) const;
  absl::Status RunNow(int function, absl::Span<const tensorflow::Tensor> inputs,
                      std::vector<tensorflow::Tensor>* outputs);

  // Makes the call after those before it. `done` may be null: then the program goes on meanwhile,
  // and the call may begin a little later, together with others.
  void Start(int function, std::vector<tensorflow::Tensor> inputs, Done done);

  // The Python line that made the function; empty if it is not known.
  const std::string& SourceOf(int function) const { return functions_->source(function); }

  // Counts what a call that the program does not wait for has cost it.
  void CountSending(int function, absl::Duration time) const;

  // Calls `idle` once no call is left, on this thread if there is none.
  void WhenIdle(std::function<void()> idle);

  // The program has failed: ends the waits for results, cancels the call that runs and drops those
  // that have not begun.
  void Abort(const absl::Status& status);

 private:
  struct Call {
    int function = 0;
    std::vector<tensorflow::Tensor> inputs;
    int64_t bytes_to_host = 0;
    // What follows is for calls that the program waits for.
    Done done;
    absl::Time asked;
    WaitMonitor::WaitId wait = 0;
  };

  // Takes this thread to make the calls, unless another one does.
  void Work(bool expected);
  // Makes calls until none is left, or the thread has something better to do.
  void MakeCalls();
  // Ends the running call. Returns whether this thread should go on to the next one.
  bool Finish(absl::StatusOr<std::vector<tensorflow::Tensor>> outputs);
  // A wait of the program has become too long.
  void Expired(int function, absl::Duration waited);
  // It is time to look after the calls that nobody waits for.
  void Watched(absl::Duration waited);
  void WatchRunning() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TooLong(int function, int running, absl::Duration waited) const;
  // The error with the place of the cluster.
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
  // Whether a thread is making calls: it alone takes them from `calls_` and sets the two below.
  // After an abort, which takes the running call away, nobody makes calls any more, and this stays.
  bool working_ ABSL_GUARDED_BY(mutex_) = false;
  Call running_ ABSL_GUARDED_BY(mutex_);
  absl::Time began_ ABSL_GUARDED_BY(mutex_);
  // Whether a thread will come soon to make calls.
  bool expected_ ABSL_GUARDED_BY(mutex_) = false;
  // Watches over running calls that nobody waits for: one for all that follow each other, since
  // the monitor costs more than a short call. 0 if there is none.
  WaitMonitor::WaitId watch_ ABSL_GUARDED_BY(mutex_) = 0;
  // What WhenIdle has left; called once, by who finds no call left or by Abort.
  std::function<void()> idle_ ABSL_GUARDED_BY(mutex_);
  // Never OK again after Abort. Who has run a call asks this before it touches anything else.
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_HOST_CALLS_H_
