// Orders whatever updates the variables of a core: programs and host ops. As on a TPU, a step sees
// what the previous one has left, even if several host threads call steps. Programs that update no
// variables need no order.
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

// Thread-safe. Calls `start` without holding a lock.
class CoreOrder {
 public:
  // A place in the order, counted from 1.
  using Place = Number<class PlaceTag, int64_t>;

  // Who takes a place.
  enum class User {
    // Needs its cores for itself, and nothing from the host while it has them.
    kProgram,
    // The same, but may need something from the host while it runs.
    kProgramThatCallsHost,
    // An op that updates a variable in one go. Several of them may do so at the same time. It does
    // not wait for a program that calls the host, because that program may be waiting for it.
    kHostOp,
  };

  struct Entrance {
    Place place;
    // Whether the user owns the cores now. If not, it owns them once `start` is called, on the
    // thread that leaves the last of them.
    bool starts;
  };

  Entrance Enter(std::vector<Core> cores, User user, std::function<void()> start);

  // Gives up the cores, or the place in the order. Does nothing if they have already been given up.
  // Users that can now start have been started when this returns, or, if it is called from within a
  // `start`, when that `start` has returned.
  void Leave(Place place);

 private:
  struct Entry {
    Place place;
    std::vector<Core> cores;  // sorted
    User user;
    std::function<void()> start;
    bool started;
  };

  // Whether the entry does not have to wait for any other.
  bool IsNext(std::list<Entry>::const_iterator entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  Place last_place_ ABSL_GUARDED_BY(mutex_);
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // in order of arrival
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_CORE_ORDER_H_
