// Where the execute ops of a step find each other.
#ifndef TF_TPU_EXT_CC_RUNTIME_LAUNCH_TABLE_H_
#define TF_TPU_EXT_CC_RUNTIME_LAUNCH_TABLE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "cc/runtime/launch.h"
#include "cc/runtime/launch_services.h"

namespace tf_tpu_ext {

// The launches that still wait for cores. Thread-safe. Its lock is taken before those of launches,
// and no callback is called under it but `joined`.
class LaunchTable {
 public:
  explicit LaunchTable(const LaunchServices& services) : services_(services) {}

  // A number that no other launch of the table has. Numbers count up from 1: 0 is no launch.
  int64_t NextLaunchId() { return next_launch_id_.fetch_add(1, std::memory_order_relaxed); }

  // Brings a core to the launch, which starts when all its cores have come. Before that, `joined`
  // gets the launch, so that a cancellation can reach it; it must not call back into either. If
  // this returns an error, the core has not come, and `arrival.done` is not called.
  absl::Status Arrive(int64_t launch_id, CoreArrival arrival,
                      const std::function<void(const std::shared_ptr<Launch>&)>& joined);

  // Fails the launch if it still waits: one of its cores cannot come.
  void Reject(int64_t launch_id, const absl::Status& status);

  // Remembers, until StopExpecting, whether the launch has begun: StopExpecting returns it.
  void Expect(int64_t launch_id);
  bool StopExpecting(int64_t launch_id);

 private:
  // The launch that the core belongs to; a new one, in `created`, if none waits for it.
  absl::StatusOr<std::shared_ptr<Launch>> FindOrCreate(int64_t launch_id, int slot,
                                                       const std::shared_ptr<Program>& program,
                                                       bool* created)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remove(int64_t run_id);

  const LaunchServices services_;
  std::atomic<int64_t> next_launch_id_{1};
  absl::Mutex mutex_;
  // Numbers runs from 1, so that no two launches of the table share one.
  int64_t next_run_id_ ABSL_GUARDED_BY(mutex_) = 1;
  // By run id: in the order in which they began. The rounds of a host loop share a launch id, and a
  // fast core may be some rounds ahead.
  std::map<int64_t, std::shared_ptr<Launch>> waiting_ ABSL_GUARDED_BY(mutex_);
  // By launch id, while expected: whether a core has come.
  std::map<int64_t, bool> begun_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_LAUNCH_TABLE_H_
