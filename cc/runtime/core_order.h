// The order of what updates the variables of a core: programs, and ops of the host. As on a TPU, a
// step sees what the one before has left, also if several threads of the host call steps. Programs
// that update no variables need no order.
#ifndef TF_TPU_EXT_CC_RUNTIME_CORE_ORDER_H_
#define TF_TPU_EXT_CC_RUNTIME_CORE_ORDER_H_

#include <cstdint>
#include <functional>
#include <list>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cc/base/core_numbers.h"
#include "cc/base/number.h"

namespace tf_tpu_ext {

// Thread-safe; `start` is called under no lock.
class CoreOrder {
 public:
  // A place in the order; counts from 1.
  using Place = Number<class PlaceTag, int64_t>;

  // Who has a place.
  enum class User {
    // Needs its cores for itself, and needs nothing of the host while it has them.
    kProgram,
    // The same, but may need something of the host while it runs.
    kProgramThatCallsHost,
    // An op that updates a variable in one go, which others like it may do at the same time. It
    // does not wait for a program that calls the host: that program may be waiting for it.
    kHostOp,
  };

  struct Entrance {
    Place place;
    // Whether the cores are the user's own now. Otherwise they will be when `start` is called, by
    // the thread that leaves the last of them.
    bool starts;
  };

  Entrance Enter(std::vector<Core> cores, User user, std::function<void()> start);

  // Gives the cores up, or the place in the order. Does nothing if that has been done.
  // What it lets start has started when it returns, unless it is called from a `start`: then when
  // that has returned.
  void Leave(Place place);

 private:
  struct Entry {
    Place place;
    std::vector<Core> cores;  // sorted
    User user;
    std::function<void()> start;
    bool started;
  };

  // Whether the entry need not wait for any other.
  bool IsNext(std::list<Entry>::const_iterator entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  Place last_place_ ABSL_GUARDED_BY(mutex_);
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // in the order in which they came
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_CORE_ORDER_H_
