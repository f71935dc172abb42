#include "cc/runtime/join_launch.h"

#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "cc/base/after_cancellation.h"
#include "cc/base/fault_points.h"
#include "cc/base/process.h"
#include "cc/pods/host_links.h"
#include "tensorflow/core/framework/cancellation.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

// Connects a cancellation to the launch that the op has joined, whichever comes first.
class CancelHandle {
 public:
  void Join(const std::shared_ptr<Launch>& launch) {
    absl::MutexLock lock(&mutex_);
    launch_ = launch;
  }
  void Cancel() {
    {
      absl::MutexLock lock(&mutex_);
      cancelled_ = true;
    }
    FailIfCancelled();
  }
  // Must also be called after Join, because the cancellation may have come earlier.
  void FailIfCancelled() {
    std::shared_ptr<Launch> launch;
    {
      absl::MutexLock lock(&mutex_);
      if (cancelled_) launch = launch_.lock();
    }
    if (launch == nullptr) return;
    AfterCancellation([launch] { launch->Fail(Cancelled("The step was cancelled.")); });
  }

 private:
  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::weak_ptr<Launch> launch_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status JoinLaunch(tensorflow::OpKernelContext* context, LaunchTable* table, Core core,
                        LaunchId launch_id, const FoundProgram& program, StepArguments arguments,
                        std::function<absl::Status(std::vector<Tensor>)> write,
                        tensorflow::AsyncOpKernel::DoneCallback done) {
  TF_RETURN_IF_ERROR(FaultAt(FaultPoint::kLaunch));
  tensorflow::CancellationManager* cancellation = context->cancellation_manager();
  auto handle = std::make_shared<CancelHandle>();
  tensorflow::CancellationToken token = 0;
  if (cancellation != nullptr) {
    token = cancellation->get_cancellation_token();
    if (!cancellation->RegisterCallback(token, [handle] { handle->Cancel(); })) {
      AfterCancellation([context, done = std::move(done)] {
        context->SetStatus(Cancelled("The step was cancelled before the TPU program started."));
        done();
      });
      return absl::OkStatus();
    }
  }
  CoreArrival arrival;
  arrival.core = core;
  arrival.program = program.program;
  arrival.step_id = context->step_id();
  arrival.arguments = std::move(arguments);
  if (program.pod != nullptr && program.program->compiled().runs_on_other_hosts()) {
    arrival.connect = [context, launch_id,
                       program](std::function<void(std::function<void()>)> schedule) {
      const std::set<Host>& hosts = program.program->compiled().hosts;
      return MakeHostLinks(*program.pod, hosts, absl::StrCat(launch_id), context->frame_iter(),
                           context->rendezvous(), std::move(schedule), Process::Get().host_traffic);
    };
  }
  arrival.done = [context, cancellation, token, write = std::move(write), done = std::move(done)](
                     absl::Status status, Outputs outputs) {
    // Does not wait, because a cancellation in progress may be what calls this.
    if (cancellation != nullptr) cancellation->TryDeregisterCallback(token);
    if (status.ok()) status = write(std::move(outputs.values()));
    if (!status.ok()) context->SetStatus(status);
    done();
  };
  absl::Status status =
      table->Arrive(launch_id, std::move(arrival),
                    [handle](const std::shared_ptr<Launch>& launch) { handle->Join(launch); });
  if (!status.ok()) {
    if (cancellation != nullptr) cancellation->TryDeregisterCallback(token);
    return status;
  }
  handle->FailIfCancelled();
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
