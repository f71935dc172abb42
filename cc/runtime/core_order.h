// The order of programs that need a core for themselves: those that read variables and update them.
// As on a TPU, a step sees what the step before has left, also if several threads of the host call
// steps. Other programs need no order.
#ifndef TF_TPU_EXT_CC_RUNTIME_CORE_ORDER_H_
#define TF_TPU_EXT_CC_RUNTIME_CORE_ORDER_H_

#include <functional>
#include <list>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"

namespace tf_tpu_ext {

// Thread-safe; `start` is called under no lock.
class CoreOrder {
 public:
  // Returns true if no program before this one holds any of the cores: they are its own now.
  // Otherwise they will be when `start` is called, by the thread that leaves the last of them.
  bool Enter(RunId id, std::vector<Core> cores, std::function<void()> start);

  // Gives the cores up, or the place in the order. Does nothing for a program that has neither.
  // What it lets start has started when it returns, unless it is called from a `start`: then when
  // that has returned.
  void Leave(RunId id);

 private:
  struct Entry {
    RunId id;
    std::vector<Core> cores;  // sorted
    std::function<void()> start;
    bool started;
  };

  // Whether the cores of the entry belong to none before it.
  bool IsNext(std::list<Entry>::const_iterator entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // in the order in which they came
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_CORE_ORDER_H_
