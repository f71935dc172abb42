#include "cc/base/waiting_threads.h"

#include <utility>

#include "cc/base/float_mode.h"

namespace tf_tpu_ext {
namespace {

constexpr int kNoSlot = -1;

thread_local const WaitingThreads* threads_of_caller = nullptr;
thread_local int slot_of_caller = kNoSlot;

}  // namespace

WaitingThreads::WaitingThreads(int num_working, size_t stack_bytes)
    : num_working_(num_working), stack_bytes_(stack_bytes) {
  for (int slot = num_working - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

WaitingThreads::~WaitingThreads() {
  std::vector<std::unique_ptr<tensorflow::Thread>> threads;
  {
    absl::MutexLock lock(&mutex_);
    const auto finished = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return queue_.empty() && working_ == 0 && waiting_ == 0;
    };
    mutex_.Await(absl::Condition(&finished));
    stopping_ = true;
    wake_.SignalAll();
    threads.swap(threads_);
  }
  // A Thread's destructor waits for the thread to end.
  threads.clear();
}

bool WaitingThreads::IsCaller() const { return threads_of_caller == this; }

int WaitingThreads::Slot() const { return IsCaller() ? slot_of_caller : kNoSlot; }

void WaitingThreads::FreeSlot() {
  if (slot_of_caller == kNoSlot) return;
  free_slots_.push_back(slot_of_caller);
  slot_of_caller = kNoSlot;
}

void WaitingThreads::Schedule(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  queue_.push_back(std::move(work));
  AddWorker();
}

void WaitingThreads::Wait(absl::FunctionRef<void()> wait) {
  if (!IsCaller()) return wait();
  {
    absl::MutexLock lock(&mutex_);
    FreeSlot();
    --working_;
    ++waiting_;
    AddWorker();
  }
  wait();
  absl::MutexLock lock(&mutex_);
  --waiting_;
  ++working_;
}

void WaitingThreads::AddWorker() {
  if (queue_.empty() || working_ >= num_working_) return;
  ++working_;
  if (idle_ > woken_) {
    ++woken_;
    wake_.Signal();
    return;
  }
  tensorflow::ThreadOptions options;
  options.stack_size = stack_bytes_;
  threads_.emplace_back(
      tensorflow::Env::Default()->StartThread(options, "tpu_program", [this] { Work(); }));
}

void WaitingThreads::Work() {
  threads_of_caller = this;
  const TensorFlowFloatMode float_mode;
  // Locked by hand: a thread whose work calls Python while Python shuts down is unwound from there,
  // when it does not hold the lock.
  mutex_.Lock();
  while (true) {
    while (!queue_.empty() && working_ <= num_working_) {
      {
        std::function<void()> work = std::move(queue_.front());
        queue_.pop_front();
        // The threads that have one are at most the others that are working.
        slot_of_caller = free_slots_.back();
        free_slots_.pop_back();
        mutex_.Unlock();
        work();
        // What the work holds is destroyed without the lock, too.
        work = nullptr;
        mutex_.Lock();
        FreeSlot();
      }
    }
    --working_;
    ++idle_;
    while (woken_ == 0 && !stopping_) wake_.Wait(&mutex_);
    --idle_;
    if (stopping_) break;
    --woken_;
  }
  mutex_.Unlock();
}

}  // namespace tf_tpu_ext
