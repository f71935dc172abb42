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

HostCalls::HostCalls(std::shared_ptr<HostFunctions> functions, int slot, CoreThreads* host_threads,
                     WaitMonitor* wait_monitor, std::function<void(const absl::Status&)> fail)
    : functions_(std::move(functions)),
      slot_(slot),
      host_threads_(*host_threads),
      wait_monitor_(*wait_monitor),
      fail_(std::move(fail)),
      cancellation_(std::make_shared<tensorflow::CancellationManager>()) {}

// No more calls are made, but an abort leaves behind the watch of the call that it took away.
HostCalls::~HostCalls() {
  absl::MutexLock lock(&mutex_);
  if (watch_ != 0) wait_monitor_.End(watch_);
}

bool HostCalls::MayRunNow(int function) const {
  const HostFunctionKind kind = functions_->kind(function);
  if (kind != HostFunctionKind::kPure && kind != HostFunctionKind::kComputes) return false;
  absl::MutexLock lock(&mutex_);
  return calls_.empty() && !working_ && aborted_.ok();
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
  call.bytes_to_host = TotalBytes(inputs);
  call.inputs = std::move(inputs);
  if (waits) {
    call.done = std::move(done);
    call.asked = absl::Now();
    call.wait = wait_monitor_.Begin([weak = weak_from_this(), function](absl::Duration waited) {
      if (std::shared_ptr<HostCalls> calls = weak.lock()) calls->Expired(function, waited);
    });
  }
  mutex_.Lock();
  if (!aborted_.ok()) {
    const absl::Status aborted = aborted_;
    mutex_.Unlock();
    if (!waits) return;
    wait_monitor_.End(call.wait);
    call.done(aborted);
    return;
  }
  calls_.push_back(std::move(call));
  const bool needs_thread = !working_ && (waits || !expected_);
  if (needs_thread && !waits) expected_ = true;
  mutex_.Unlock();
  if (needs_thread && waits) {
    // The program does not need its thread until the call returns.
    host_threads_.ScheduleAfterCurrent([self = shared_from_this()] { self->Work(false); });
  } else if (needs_thread) {
    host_threads_.ScheduleSoon([self = shared_from_this()] { self->Work(true); });
  }
}

void HostCalls::Work(bool expected) {
  {
    absl::MutexLock lock(&mutex_);
    if (expected) expected_ = false;
    if (working_ || !aborted_.ok()) return;
    working_ = true;
  }
  MakeCalls();
}

void HostCalls::MakeCalls() {
  while (true) {
    int function = 0;
    std::vector<Tensor> inputs;
    std::function<void()> idle;
    bool ends = false;
    {
      absl::MutexLock lock(&mutex_);
      if (!aborted_.ok()) return;
      ends = calls_.empty();
      if (ends) {
        working_ = false;
        idle = std::move(idle_);
        idle_ = nullptr;
        if (watch_ != 0) wait_monitor_.End(watch_);
        watch_ = 0;
      } else {
        running_ = std::move(calls_.front());
        calls_.pop_front();
        began_ = absl::Now();
        if (!running_.done && watch_ == 0) WatchRunning();
        function = running_.function;
        inputs = std::move(running_.inputs);
      }
    }
    if (ends) {
      if (idle) idle();
      return;
    }
    // Its ops have threads of their own: the thread that ends it continues with the calls.
    if (functions_->kind(function) == HostFunctionKind::kBlocksInParallel) {
      functions_->Start(function, slot_, cancellation_, std::move(inputs),
                        [self = shared_from_this()](absl::StatusOr<std::vector<Tensor>> outputs) {
                          if (self->Finish(std::move(outputs))) self->MakeCalls();
                        });
      return;
    }
    absl::StatusOr<std::vector<Tensor>> outputs{std::vector<Tensor>()};
    const absl::Status status =
        functions_->Run(function, slot_, cancellation_.get(), inputs, &*outputs);
    if (!status.ok()) outputs = status;
    // The step may end in Finish, and nothing of it may be kept then.
    inputs.clear();
    if (!Finish(std::move(outputs))) return;
  }
}

bool HostCalls::Finish(absl::StatusOr<std::vector<Tensor>> outputs) {
  Call call;
  absl::Time began;
  bool goes_on = true;
  {
    absl::MutexLock lock(&mutex_);
    // Abort has already ended it.
    if (!aborted_.ok()) return false;
    call = std::move(running_);
    running_ = Call();
    began = began_;
    if (call.done && calls_.empty() && !idle_) {
      // The program continues on this thread.
      goes_on = working_ = false;
      if (watch_ != 0) wait_monitor_.End(watch_);
      watch_ = 0;
    }
  }
  if (call.wait != 0) wait_monitor_.End(call.wait);
  // Before `done`, which may end the step: the step's statistics must be complete by then.
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
  return goes_on;
}

void HostCalls::Count(const Call& call, absl::Time began,
                      const std::vector<Tensor>& outputs) const {
  const absl::Time now = absl::Now();
  ClusterCounters& counters = functions_->counters(call.function);
  Add(counters.calls, 1);
  Add(counters.bytes_to_host, call.bytes_to_host);
  Add(counters.bytes_to_device, TotalBytes(outputs));
  Add(counters.running_nanoseconds, absl::ToInt64Nanoseconds(now - began));
  if (call.done) Add(counters.waiting_nanoseconds, absl::ToInt64Nanoseconds(now - call.asked));
}

void HostCalls::CountSending(int function, absl::Duration time) const {
  Add(functions_->counters(function).waiting_nanoseconds, absl::ToInt64Nanoseconds(time));
}

void HostCalls::Expired(int function, absl::Duration waited) {
  int running = function;
  {
    absl::MutexLock lock(&mutex_);
    // The result came while the monitor was on its way.
    if (!aborted_.ok() || (!working_ && calls_.empty())) return;
    if (working_) running = running_.function;
  }
  fail_(TooLong(function, running, waited));
}

void HostCalls::WatchRunning() {
  watch_ = wait_monitor_.Begin([weak = weak_from_this()](absl::Duration waited) {
    if (std::shared_ptr<HostCalls> calls = weak.lock()) calls->Watched(waited);
  });
}

void HostCalls::Watched(absl::Duration waited) {
  int function = 0;
  {
    absl::MutexLock lock(&mutex_);
    watch_ = 0;
    if (!aborted_.ok() || !working_ || running_.done) return;
    if (absl::Now() - began_ < waited) {
      // A different call was running when the watch began.
      WatchRunning();
      return;
    }
    function = running_.function;
  }
  fail_(TooLong(function, function, waited));
}

absl::Status HostCalls::TooLong(int function, int running, absl::Duration waited) const {
  return absl::DeadlineExceededError(absl::StrCat(
      "The host call of ", functions_->description(function), " waited longer than the limit of ",
      absl::FormatDuration(waited),
      running == function
          ? ": its function on the host has not returned."
          : absl::StrCat(" for ", functions_->description(running), ", which has not returned."),
      " Find out what the function waits for, or ", kRaiseWaitLimit));
}

void HostCalls::WhenIdle(std::function<void()> idle) {
  mutex_.Lock();
  if (!aborted_.ok() || (!working_ && calls_.empty())) {
    mutex_.Unlock();
    idle();
    return;
  }
  idle_ = std::move(idle);
  const bool needs_thread = !working_;
  mutex_.Unlock();
  if (needs_thread) {
    // The step waits for the calls now.
    host_threads_.ScheduleAfterCurrent([self = shared_from_this()] { self->Work(false); });
  }
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
    if (working_) calls.push_front(std::move(running_));
    running_ = Call();
    idle = std::move(idle_);
    idle_ = nullptr;
  }
  // Without the lock, since cancelled kernels may end in Finish on this thread; and first, so that
  // the host is already being stopped when the program continues.
  cancellation_->StartCancel();
  for (Call& call : calls) {
    if (!call.done) continue;
    wait_monitor_.End(call.wait);
    call.done(status);
  }
  if (idle) idle();
}

}  // namespace tf_tpu_ext
