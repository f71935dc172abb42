// Where the execute ops of a step find each other.
#ifndef TF_TPU_EXT_CC_RUNTIME_LAUNCH_TABLE_H_
#define TF_TPU_EXT_CC_RUNTIME_LAUNCH_TABLE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"
#include "cc/runtime/launch.h"
#include "cc/runtime/launch_services.h"

namespace tf_tpu_ext {

// What the launches of a process have come to.
struct LaunchProgress {
  // How many have run to their end, or failed while they ran.
  int64_t ended = 0;
  // The oldest that goes on, if any: its number, its program, and which cores wait for which.
  RunId run_id;
  std::string program;
  std::string waits;
};

// The launches that still wait for cores, and those that run. Thread-safe. Its lock is taken before
// those of launches, and no callback is called under it but `joined`.
class LaunchTable {
 public:
  explicit LaunchTable(const LaunchServices& services) : services_(services) {}

  // An id that no other launch of the table has.
  LaunchId NextLaunchId() {
    return LaunchId(next_launch_id_.fetch_add(1, std::memory_order_relaxed));
  }

  // Brings a core to the launch, which starts when all its cores have come. Before that, `joined`
  // gets the launch, so that a cancellation can reach it; it must not call back into either. If
  // this returns an error, the core has not come, and `arrival.done` is not called.
  absl::Status Arrive(LaunchId launch_id, CoreArrival arrival,
                      const std::function<void(const std::shared_ptr<Launch>&)>& joined);

  // Fails the launch if it still waits: one of its cores cannot come.
  void Reject(LaunchId launch_id, const absl::Status& status);

  // Remembers, until StopExpecting, whether the launch has begun: StopExpecting returns it.
  void Expect(LaunchId launch_id);
  bool StopExpecting(LaunchId launch_id);

  // Waits that are younger than `age` are left out.
  LaunchProgress Progress(absl::Duration age) const;

 private:
  // The launch that the core belongs to; a new one, in `created`, if none waits for it.
  absl::StatusOr<std::shared_ptr<Launch>> FindOrCreate(LaunchId launch_id, Slot slot,
                                                       const std::shared_ptr<Program>& program,
                                                       bool* created)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Start(const std::shared_ptr<Launch>& launch) const;
  void Leave(RunId run_id);

  const LaunchServices services_;
  std::atomic<int64_t> next_launch_id_{1};
  mutable absl::Mutex mutex_;
  RunId last_run_id_ ABSL_GUARDED_BY(mutex_);
  // In the order in which they began: a fast core may be some rounds of a host loop ahead.
  std::map<RunId, std::shared_ptr<Launch>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::map<RunId, std::weak_ptr<Launch>> running_ ABSL_GUARDED_BY(mutex_);
  int64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;
  // While expected: whether a core has come.
  std::map<LaunchId, bool> begun_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_LAUNCH_TABLE_H_
