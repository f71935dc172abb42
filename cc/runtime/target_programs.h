// Programs that are waiting to be passed to a real TPU's compiler.
#ifndef TF_TPU_EXT_CC_RUNTIME_TARGET_PROGRAMS_H_
#define TF_TPU_EXT_CC_RUNTIME_TARGET_PROGRAMS_H_

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cc/program/target_program.h"

namespace tf_tpu_ext {

// An unbounded queue, because compiling must not wait. Thread-safe.
class TargetPrograms {
 public:
  void Add(TargetProgram program);

  // Returns the next program. Waits until there is one. Returns nothing after Wake.
  std::optional<TargetProgram> Take();

  // Lets one Take return nothing, now or once the queue is empty.
  void Wake();

  // How many programs have been added so far.
  int64_t added() const;

 private:
  bool HasNews() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !programs_.empty() || woken_ > 0;
  }

  mutable absl::Mutex mutex_;
  std::deque<TargetProgram> programs_ ABSL_GUARDED_BY(mutex_);
  int64_t added_ ABSL_GUARDED_BY(mutex_) = 0;
  int woken_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_TARGET_PROGRAMS_H_
