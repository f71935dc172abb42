// Tells ThreadSanitizer what absl's mutexes, once-flags, notifications and
// counters, TensorFlow's thread pools and executors, and XLA's asynchronous
// values put in order.
//
// They live in libtensorflow_framework, which is not instrumented, so that
// ThreadSanitizer would take all they guard for races. This library is
// preloaded: its functions stand before TensorFlow's own, which they call, for
// our callers and for TensorFlow's alike.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/base/internal/spinlock_wait.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "tensorflow/core/common_runtime/dma_helper.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tsl/platform/threadpool.h"
#include "xla/tsl/concurrency/async_value.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
// How names in absl's inline namespace, "lts_" and eight digits, are mangled.
#define ABSL_NAME(prefix, name) \
  prefix "4absl12" TEXT(ABSL_OPTION_INLINE_NAMESPACE_NAME) name
#define MANGLED(name) ABSL_NAME("_ZN", name)
#define MANGLED_CONST(name) ABSL_NAME("_ZNK", name)
#define TIMEOUT "NS0_24synchronization_internal13KernelTimeoutE"

// The function that `name` would mean without this library. Python loads TensorFlow's library for
// itself, where the next in order does not stand.
template <typename Function>
static Function* Next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    void* library = dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD);
    if (library != nullptr) found = dlsym(library, name);
  }
  return reinterpret_cast<Function*>(found);
}

namespace absl {
ABSL_NAMESPACE_BEGIN

using synchronization_internal::KernelTimeout;

namespace {

// A condition that is evaluated, by whichever thread holds the mutex or gives it
// up, after all that the mutex guarded before and before all that it will guard.
struct OrderedCondition {
  static bool Eval(OrderedCondition* self) {
    __tsan_acquire(self->mutex);
    const bool holds = self->condition->Eval();
    __tsan_release(self->mutex);
    return holds;
  }

  Mutex* mutex;
  const Condition* condition;
};

}  // namespace

void Mutex::lock() {
  static auto* next = Next<void(Mutex*)>(MANGLED("5Mutex4lockEv"));
  next(this);
  __tsan_acquire(this);
}

void Mutex::unlock() {
  static auto* next = Next<void(Mutex*)>(MANGLED("5Mutex6unlockEv"));
  // Unlocking evaluates the conditions of those who wait: what they wrote
  // before they waited comes before.
  __tsan_acquire(this);
  __tsan_release(this);
  next(this);
}

bool Mutex::try_lock() {
  static auto* next = Next<bool(Mutex*)>(MANGLED("5Mutex8try_lockEv"));
  const bool locked = next(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::lock_shared() {
  static auto* next = Next<void(Mutex*)>(MANGLED("5Mutex11lock_sharedEv"));
  next(this);
  __tsan_acquire(this);
}

void Mutex::unlock_shared() {
  static auto* next = Next<void(Mutex*)>(MANGLED("5Mutex13unlock_sharedEv"));
  __tsan_acquire(this);
  __tsan_release(this);
  next(this);
}

bool Mutex::try_lock_shared() {
  static auto* next = Next<bool(Mutex*)>(MANGLED("5Mutex15try_lock_sharedEv"));
  const bool locked = next(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

bool Mutex::AwaitCommon(const Condition& cond, KernelTimeout timeout) {
  static auto* next = Next<bool(Mutex*, const Condition&, KernelTimeout)>(
      MANGLED("5Mutex11AwaitCommonERKNS0_9ConditionE" TIMEOUT));
  OrderedCondition ordered{this, &cond};
  __tsan_release(this);
  const bool held =
      next(this, Condition(&OrderedCondition::Eval, &ordered), timeout);
  __tsan_acquire(this);
  return held;
}

bool Mutex::LockWhenCommon(const Condition& cond, KernelTimeout timeout,
                           bool write) {
  static auto* next =
      Next<bool(Mutex*, const Condition&, KernelTimeout, bool)>(
          MANGLED("5Mutex14LockWhenCommonERKNS0_9ConditionE" TIMEOUT "b"));
  OrderedCondition ordered{this, &cond};
  __tsan_release(this);
  const bool held =
      next(this, Condition(&OrderedCondition::Eval, &ordered), timeout, write);
  __tsan_acquire(this);
  return held;
}

bool CondVar::WaitCommon(Mutex* mutex, KernelTimeout timeout) {
  static auto* next = Next<bool(CondVar*, Mutex*, KernelTimeout)>(
      MANGLED("7CondVar10WaitCommonEPNS0_5MutexE" TIMEOUT));
  __tsan_release(mutex);
  const bool timed_out = next(this, mutex, timeout);
  __tsan_acquire(mutex);
  return timed_out;
}

bool BlockingCounter::DecrementCount() {
  static auto* next =
      Next<bool(BlockingCounter*)>(MANGLED("15BlockingCounter14DecrementCountEv"));
  __tsan_release(this);
  return next(this);
}

void BlockingCounter::Wait() {
  static auto* next =
      Next<void(BlockingCounter*)>(MANGLED("15BlockingCounter4WaitEv"));
  next(this);
  __tsan_acquire(this);
}

void Notification::Notify() {
  static auto* next =
      Next<void(Notification*)>(MANGLED("12Notification6NotifyEv"));
  // Callers read this very atomic in code of their own, which acquires it.
  __tsan_release(&notified_yet_);
  next(this);
}

void Notification::WaitForNotification() const {
  static auto* next = Next<void(const Notification*)>(
      MANGLED_CONST("12Notification19WaitForNotificationEv"));
  next(this);
  __tsan_acquire(const_cast<std::atomic<bool>*>(&notified_yet_));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  static auto* next = Next<bool(const Notification*, Duration)>(MANGLED_CONST(
      "12Notification30WaitForNotificationWithTimeoutENS0_8DurationE"));
  const bool notified = next(this, timeout);
  if (notified) __tsan_acquire(const_cast<std::atomic<bool>*>(&notified_yet_));
  return notified;
}

namespace base_internal {

// Where `call_once` waits for another caller. The rest of it is inline, in code of its callers.
uint32_t SpinLockWait(std::atomic<uint32_t>* word, int n,
                      const SpinLockWaitTransition transitions[],
                      SchedulingMode mode) {
  static auto* next =
      Next<uint32_t(std::atomic<uint32_t>*, int, const SpinLockWaitTransition[],
                    SchedulingMode)>(
          MANGLED("13base_internal12SpinLockWaitEPSt6atomicIjEiPKNS1_"
                  "22SpinLockWaitTransitionENS1_14SchedulingModeE"));
  const uint32_t before = next(word, n, transitions, mode);
  __tsan_acquire(word);
  return before;
}

}  // namespace base_internal

ABSL_NAMESPACE_END
}  // namespace absl

namespace tsl {
namespace thread {

void ThreadPool::Schedule(std::function<void()> work) {
  static auto* next = Next<void(ThreadPool*, std::function<void()>)>(
      "_ZN3tsl6thread10ThreadPool8ScheduleESt8functionIFvvEE");
  // What came before the scheduling comes before the work.
  auto* order = new char;
  __tsan_release(order);
  next(this, [order, work = std::move(work)] {
    __tsan_acquire(order);
    delete order;
    work();
  });
}

}  // namespace thread

void AsyncValue::EnqueueWaiterListNode(WaiterListNode* waiter,
                                       WaitersAndState waiters_and_state) {
  static auto* next = Next<void(AsyncValue*, WaiterListNode*, WaitersAndState)>(
      "_ZN3tsl10AsyncValue21EnqueueWaiterListNodeEPNS0_14WaiterListNodeENS0_"
      "15WaitersAndStateE");
  // The value's atomic word orders what made the waiter before what runs it.
  struct OrderedWaiter final : WaiterListNode {
    explicit OrderedWaiter(WaiterListNode* waiter) : waiter(waiter) {
      __tsan_release(waiter);
    }
    void RunWaiterAndDeleteWaiterNode() final {
      __tsan_acquire(waiter);
      waiter->RunWaiterAndDeleteWaiterNode();
      delete this;
    }

    WaiterListNode* const waiter;
  };
  next(this, new OrderedWaiter(waiter), waiters_and_state);
}

}  // namespace tsl

namespace tensorflow {
namespace {

// What a kernel has written to a tensor comes before what others read, to whom the executor hands
// it over.
void Release(const Tensor& tensor) {
  const void* data = DMAHelper::base(&tensor);
  if (data != nullptr) __tsan_release(const_cast<void*>(data));
}

void Acquire(const Tensor& tensor) {
  const void* data = DMAHelper::base(&tensor);
  if (data != nullptr) __tsan_acquire(const_cast<void*>(data));
}

}  // namespace

const Tensor& OpKernelContext::input(int index) const {
  static auto* next = Next<const Tensor&(const OpKernelContext*, int)>(
      "_ZNK10tensorflow15OpKernelContext5inputEi");
  const Tensor& tensor = next(this, index);
  Acquire(tensor);
  return tensor;
}

void OpKernelContext::set_output(int index, const Tensor& tensor) {
  static auto* next = Next<void(OpKernelContext*, int, const Tensor&)>(
      "_ZN10tensorflow15OpKernelContext10set_outputEiRKNS_6TensorE");
  Release(tensor);
  next(this, index, tensor);
}

void OpKernelContext::set_output(int index, Tensor&& tensor) {
  static auto* next = Next<void(OpKernelContext*, int, Tensor&&)>(
      "_ZN10tensorflow15OpKernelContext10set_outputEiONS_6TensorE");
  Release(tensor);
  next(this, index, std::move(tensor));
}

}  // namespace tensorflow
