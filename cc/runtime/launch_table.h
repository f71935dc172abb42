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

// The state of a process's launches.
struct LaunchProgress {
  // How many have run to the end, or failed while running.
  int64_t ended = 0;
  // The oldest launch in progress, if any: its number, its program, and which cores wait for which.
  RunId run_id;
  std::string program;
  std::string waits;
};

// The launches that are running or still waiting for cores. Thread-safe. Its lock is acquired
// before those of launches. No callback other than `joined` is called while it is held.
class LaunchTable {
 public:
  explicit LaunchTable(const LaunchServices& services) : services_(services) {}

  // An ID that no other launch in the table has.
  LaunchId NextLaunchId() {
    return LaunchId(next_launch_id_.fetch_add(1, std::memory_order_relaxed));
  }

  // Adds a core to the launch, which starts when all its cores have arrived. Before that, passes
  // the launch to `joined`, so that a cancellation can reach it. `joined` must not call back into
  // the launch or the table. If this returns an error, the core has not been added, and
  // `arrival.done` is not called.
  absl::Status Arrive(LaunchId launch_id, CoreArrival arrival,
                      const std::function<void(const std::shared_ptr<Launch>&)>& joined);

  // Fails the launch if it is still waiting, because one of its cores cannot arrive.
  void Reject(LaunchId launch_id, const absl::Status& status);

  // Remembers, until StopExpecting, whether the launch has begun, which StopExpecting returns.
  void Expect(LaunchId launch_id);
  bool StopExpecting(LaunchId launch_id);

  // Leaves out waits shorter than `age`.
  LaunchProgress Progress(absl::Duration age) const;

 private:
  // The launch that the core belongs to. If none waits for the core, makes a new one and sets
  // `created`.
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
  // In the order in which they began: a fast core may be several iterations of a host loop ahead.
  std::map<RunId, std::shared_ptr<Launch>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::map<RunId, std::weak_ptr<Launch>> running_ ABSL_GUARDED_BY(mutex_);
  int64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;
  // For expected launches: whether a core has arrived.
  std::map<LaunchId, bool> begun_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_LAUNCH_TABLE_H_
