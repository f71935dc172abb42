#include "cc/kernels/ordered_update.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cc/base/after_cancellation.h"
#include "cc/base/core_numbers.h"
#include "cc/base/core_threads.h"
#include "cc/base/process.h"
#include "cc/base/wait_monitor.h"
#include "cc/kernels/cpu_first.h"
#include "cc/kernels/nested_kernel.h"
#include "cc/kernels/variable_types.h"
#include "cc/runtime/core_order.h"
#include "tensorflow/compiler/tf2xla/resource_operation_table.h"
#include "tensorflow/core/framework/cancellation.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

// One call of a kernel. It ends exactly once: by running, or because its wait was cancelled or too
// long.
class Update : public std::enable_shared_from_this<Update> {
 public:
  // `kernel` updates variables of that type. `compiled` may be null.
  Update(OpKernel* kernel, AsyncOpKernel* compiled, tensorflow::DataType type,
         OpKernelContext* context, AsyncOpKernel::DoneCallback done)
      : kernel_(kernel),
        compiled_(compiled),
        type_(type),
        context_(context),
        cancellation_(context->cancellation_manager()),
        core_(context->device()->parsed_name().id),
        done_(std::move(done)) {}

  void Start() {
    {
      // Under the lock: the end, which may come immediately on another thread, needs all of this.
      absl::MutexLock lock(&mutex_);
      const CoreOrder::Entrance entrance = Process::Get().core_order->Enter(
          {core_}, CoreOrder::User::kHostOp, [self = shared_from_this()] {
            // The thread that ran the program has other programs to run.
            Process::Get().host_threads->Schedule([self] { self->Run(); });
          });
      place_ = entrance.place;
      if (!entrance.starts) return WatchWait();
    }
    Run();
  }

 private:
  void WatchWait() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    wait_ = Process::Get().wait_monitor->Begin([weak = weak_from_this()](absl::Duration waited) {
      if (std::shared_ptr<Update> update = weak.lock()) update->WaitExpired(waited);
    });
    if (cancellation_ == nullptr) return;
    token_ = cancellation_->get_cancellation_token();
    const auto cancel = [weak = weak_from_this()] {
      AfterCancellation([weak] {
        if (std::shared_ptr<Update> update = weak.lock()) update->Cancel();
      });
    };
    if (!cancellation_->RegisterCallback(token_, cancel)) cancel();
  }

  void Run() {
    if (!End()) return;
    absl::Status status = CheckVariableTypes(context_, type_);
    if (status.ok()) {
      status = ComputeNested(kernel_, /*keep_inputs=*/compiled_ != nullptr, context_);
      if (compiled_ != nullptr && IsRefusal(status)) return RunCompiled();
    }
    context_->SetStatus(status);
    Finish();
  }

  void Fail(const absl::Status& status) {
    if (!End()) return;
    context_->SetStatus(status);
    Finish();
  }

  void Cancel() { Fail(Cancelled("The step was cancelled before the variable was updated.")); }

  void WaitExpired(absl::Duration waited) {
    Fail(absl::DeadlineExceededError(absl::StrCat(
        "Op ", kernel_->name(), " (", kernel_->type_string(), ") updates a variable of core ",
        core_, ", and has waited longer than the limit of ", absl::FormatDuration(waited),
        " for a program on that core that updates variables too. Look for what that program waits "
        "for, or ",
        kRaiseWaitLimit)));
  }

  // Returns whether the caller is the one that ends the update; then nobody else uses the context.
  bool End() {
    WaitMonitor::WaitId wait;
    {
      absl::MutexLock lock(&mutex_);
      if (ended_) return false;
      ended_ = true;
      wait = wait_;
    }
    if (wait != 0) {
      Process::Get().wait_monitor->End(wait);
      // Does not wait, because a cancellation in progress may be what calls this.
      if (cancellation_ != nullptr) cancellation_->TryDeregisterCallback(token_);
    }
    return true;
  }

  void RunCompiled() {
    // The compiled op takes a place of its own.
    Process::Get().core_order->Leave(place());
    compiled_->ComputeAsync(context_, std::exchange(done_, nullptr));
  }

  void Finish() {
    const CoreOrder::Place place = this->place();
    // `done_` may delete the kernel and the context, but the place outlives them.
    std::exchange(done_, nullptr)();
    Process::Get().core_order->Leave(place);
  }

  CoreOrder::Place place() {
    absl::MutexLock lock(&mutex_);
    return place_;
  }

  OpKernel* const kernel_;
  AsyncOpKernel* const compiled_;
  const tensorflow::DataType type_;
  OpKernelContext* const context_;
  tensorflow::CancellationManager* const cancellation_;
  const Core core_;
  // Used only by whoever ends the update.
  AsyncOpKernel::DoneCallback done_;

  absl::Mutex mutex_;
  CoreOrder::Place place_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  // 0 unless the update waits. Set together with the cancellation token.
  WaitMonitor::WaitId wait_ ABSL_GUARDED_BY(mutex_) = 0;
  // Written before the wait begins, read by whoever ends it.
  tensorflow::CancellationToken token_ = 0;
};

class OrderedUpdateOp : public AsyncOpKernel {
 public:
  OrderedUpdateOp(OpKernelConstruction* construction, std::unique_ptr<OpKernel> kernel,
                  std::unique_ptr<OpKernel> compiled)
      : AsyncOpKernel(construction),
        kernel_(std::move(kernel)),
        compiled_(std::move(compiled)),
        type_(UpdatedType(*construction)) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    AsyncOpKernel* const compiled = compiled_ == nullptr ? nullptr : compiled_->AsAsync();
    std::make_shared<Update>(kernel_.get(), compiled, type_, context, std::move(done))->Start();
  }
  bool IsExpensive() override { return kernel_->IsExpensive(); }

 private:
  const std::unique_ptr<OpKernel> kernel_;
  const std::unique_ptr<OpKernel> compiled_;
  const tensorflow::DataType type_;
};

}  // namespace

bool UpdatesVariable(const std::string& op) {
  const tensorflow::XlaResourceOpInfo* info = tensorflow::GetResourceOpInfoForOp(op);
  return info != nullptr && info->resource_kind() == tensorflow::XlaResourceKind::kVariable &&
         info->kind() != tensorflow::XlaResourceOpKind::kRead;
}

OpKernel* MakeOrderedUpdate(OpKernelConstruction* construction, std::unique_ptr<OpKernel> kernel,
                            std::unique_ptr<OpKernel> compiled) {
  return new OrderedUpdateOp(construction, std::move(kernel), std::move(compiled));
}

}  // namespace tf_tpu_ext
