// The calls that one core of a running program makes on the host, one after the other.
#ifndef TF_TPU_EXT_CC_TRANSFER_HOST_CALLS_H_
#define TF_TPU_EXT_CC_TRANSFER_HOST_CALLS_H_

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cc/runtime/wait_monitor.h"
#include "cc/transfer/host_functions.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

class HostCalls : public std::enable_shared_from_this<HostCalls> {
 public:
  using Done = HostFunctions::Done;

  // `fail` is told when a call fails whose results nobody waits for.
  HostCalls(std::shared_ptr<HostFunctions> functions, int slot,
            std::function<void(const absl::Status&)> fail);

  // Whether a call may use the calling thread, and the program's memory, until it returns. The
  // program makes one call at a time, so it stays true until the next Start.
  bool MayRunNow(int function) const;
  absl::Status RunNow(int function, absl::Span<const tensorflow::Tensor> inputs,
                      std::vector<tensorflow::Tensor>* outputs);

  // Makes the call after those before it. `done` may be null: then the program goes on meanwhile.
  void Start(int function, std::vector<tensorflow::Tensor> inputs, Done done);

  // Calls `idle` once no call is left, on this thread if there is none.
  void WhenIdle(std::function<void()> idle);

  // The program has failed: ends the waits for results, cancels the call that runs and drops those
  // that have not begun.
  void Abort(const absl::Status& status);

 private:
  struct Call {
    int function = 0;
    std::vector<tensorflow::Tensor> inputs;
    Done done;
    absl::Time asked;
    WaitMonitor::WaitId wait = 0;
  };

  void StartFirst(bool caller_returns);
  void FirstDone(absl::StatusOr<std::vector<tensorflow::Tensor>> outputs);
  void Expired(int function, absl::Duration waited);
  // The error with the place of the cluster.
  absl::Status Explained(int function, const absl::Status& status) const;
  void Count(const Call& call, absl::Time began,
             const std::vector<tensorflow::Tensor>& outputs) const;

  const std::shared_ptr<HostFunctions> functions_;
  const int slot_;
  const std::function<void(const absl::Status&)> fail_;
  const std::shared_ptr<tensorflow::CancellationManager> cancellation_;

  mutable absl::Mutex mutex_;
  // The first one runs.
  std::deque<Call> calls_ ABSL_GUARDED_BY(mutex_);
  absl::Time began_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> idle_ ABSL_GUARDED_BY(mutex_);
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_HOST_CALLS_H_
