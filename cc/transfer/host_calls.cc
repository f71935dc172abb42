#include "cc/transfer/host_calls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cc/transfer/transfer_stats.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

void Add(std::atomic<int64_t>& counter, int64_t amount) {
  counter.fetch_add(amount, std::memory_order_relaxed);
}

}  // namespace

HostCalls::HostCalls(std::shared_ptr<HostFunctions> functions, int slot,
                     std::function<void(const absl::Status&)> fail)
    : functions_(std::move(functions)),
      slot_(slot),
      fail_(std::move(fail)),
      cancellation_(std::make_shared<tensorflow::CancellationManager>()) {}

bool HostCalls::MayRunNow(int function) const {
  const HostFunctionKind kind = functions_->kind(function);
  if (kind != HostFunctionKind::kPure && kind != HostFunctionKind::kComputes) return false;
  absl::MutexLock lock(&mutex_);
  return calls_.empty() && aborted_.ok();
}

absl::Status HostCalls::RunNow(int function, absl::Span<const Tensor> inputs,
                               std::vector<Tensor>* outputs) {
  const absl::Time began = absl::Now();
  const absl::Status status =
      functions_->Run(function, slot_, cancellation_.get(), inputs, outputs);
  const int64_t nanoseconds = absl::ToInt64Nanoseconds(absl::Now() - began);
  ClusterCounters& counters = functions_->counters(function);
  Add(counters.calls, 1);
  Add(counters.bytes_to_host, TotalBytes(inputs));
  Add(counters.bytes_to_device, TotalBytes(*outputs));
  Add(counters.running_nanoseconds, nanoseconds);
  Add(counters.waiting_nanoseconds, nanoseconds);
  return status.ok() ? status : Explained(function, status);
}

absl::Status HostCalls::Explained(int function, const absl::Status& status) const {
  return absl::Status(status.code(),
                      absl::StrCat(functions_->description(function), ": ", status.message()));
}

void HostCalls::Start(int function, std::vector<Tensor> inputs, Done done) {
  const bool waits = done != nullptr;
  Call call;
  call.function = function;
  call.inputs = std::move(inputs);
  call.done = std::move(done);
  call.asked = absl::Now();
  absl::Status aborted;
  bool first = false;
  {
    absl::MutexLock lock(&mutex_);
    aborted = aborted_;
    if (aborted.ok()) {
      call.wait =
          WaitMonitor::Get().Begin([weak = weak_from_this(), function](absl::Duration waited) {
            if (std::shared_ptr<HostCalls> calls = weak.lock()) calls->Expired(function, waited);
          });
      calls_.push_back(std::move(call));
      first = calls_.size() == 1;
      if (first) began_ = absl::Now();
    }
  }
  if (!aborted.ok()) {
    if (call.done) call.done(aborted);
  } else if (first) {
    // The program goes on with this thread unless it waits for the call.
    StartFirst(/*caller_returns=*/waits);
  }
}

void HostCalls::StartFirst(bool caller_returns) {
  int function;
  std::vector<Tensor> inputs;
  {
    absl::MutexLock lock(&mutex_);
    if (calls_.empty()) return;
    function = calls_.front().function;
    inputs = calls_.front().inputs;
  }
  functions_->Start(function, slot_, cancellation_, std::move(inputs), caller_returns,
                    [self = shared_from_this()](absl::StatusOr<std::vector<Tensor>> outputs) {
                      self->FirstDone(std::move(outputs));
                    });
}

void HostCalls::FirstDone(absl::StatusOr<std::vector<Tensor>> outputs) {
  Call call;
  absl::Time began;
  {
    absl::MutexLock lock(&mutex_);
    // Abort has told the end of it.
    if (!aborted_.ok()) return;
    Call& first = calls_.front();
    call = {first.function, std::move(first.inputs), std::move(first.done), first.asked,
            first.wait};
    began = began_;
  }
  WaitMonitor::Get().End(call.wait);
  if (outputs.ok()) {
    Count(call, began, *outputs);
  } else {
    outputs = Explained(call.function, outputs.status());
  }
  if (call.done) {
    call.done(std::move(outputs));
  } else if (!outputs.ok()) {
    fail_(outputs.status());
  }
  std::function<void()> idle;
  {
    absl::MutexLock lock(&mutex_);
    if (!aborted_.ok()) return;
    calls_.pop_front();
    if (calls_.empty()) {
      idle = std::move(idle_);
      idle_ = nullptr;
    } else {
      began_ = absl::Now();
    }
  }
  if (idle) {
    idle();
  } else {
    StartFirst(/*caller_returns=*/true);
  }
}

void HostCalls::Count(const Call& call, absl::Time began,
                      const std::vector<Tensor>& outputs) const {
  const absl::Time now = absl::Now();
  ClusterCounters& counters = functions_->counters(call.function);
  Add(counters.calls, 1);
  Add(counters.bytes_to_host, TotalBytes(call.inputs));
  Add(counters.bytes_to_device, TotalBytes(outputs));
  Add(counters.running_nanoseconds, absl::ToInt64Nanoseconds(now - began));
  if (call.done) Add(counters.waiting_nanoseconds, absl::ToInt64Nanoseconds(now - call.asked));
}

void HostCalls::Expired(int function, absl::Duration waited) {
  int running;
  {
    absl::MutexLock lock(&mutex_);
    if (calls_.empty() || !aborted_.ok()) return;
    running = calls_.front().function;
  }
  fail_(absl::DeadlineExceededError(absl::StrCat(
      "The host call of ", functions_->description(function), " waited longer than the limit of ",
      absl::FormatDuration(waited),
      running == function
          ? ": its function on the host has not returned."
          : absl::StrCat(" for ", functions_->description(running), ", which has not returned."),
      " Find out what the function waits for, or raise the limit with "
      "tf_tpu_ext.configure(wait_limit_seconds=...).")));
}

void HostCalls::WhenIdle(std::function<void()> idle) {
  {
    absl::MutexLock lock(&mutex_);
    if (aborted_.ok() && !calls_.empty()) {
      idle_ = std::move(idle);
      return;
    }
  }
  idle();
}

void HostCalls::Abort(const absl::Status& status) {
  std::deque<Call> calls;
  std::function<void()> idle;
  {
    absl::MutexLock lock(&mutex_);
    if (!aborted_.ok()) return;
    aborted_ = status;
    calls = std::move(calls_);
    calls_.clear();
    idle = std::move(idle_);
    idle_ = nullptr;
  }
  cancellation_->StartCancel();
  for (Call& call : calls) {
    WaitMonitor::Get().End(call.wait);
    if (call.done) call.done(status);
  }
  if (idle) idle();
}

}  // namespace tf_tpu_ext
