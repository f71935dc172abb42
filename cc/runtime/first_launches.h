// Records when and on which cores the first launches of each program ran, for the timeline of a
// report.
#ifndef TF_TPU_EXT_CC_RUNTIME_FIRST_LAUNCHES_H_
#define TF_TPU_EXT_CC_RUNTIME_FIRST_LAUNCHES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"

namespace tf_tpu_ext {

// One run of a launch. Several cores may share it.
struct TimedRun {
  std::vector<Core> cores;
  absl::Time begin;
  // The infinite past while it is running.
  absl::Time end = absl::InfinitePast();
};

struct TimedLaunch {
  int64_t program_id = 0;
  RunId run_id;
  // From the arrival of all cores until the last one has finished, including the shared update.
  absl::Time begin;
  absl::Time end = absl::InfinitePast();
  std::vector<TimedRun> runs;
};

// The record of one launch while it is running. Thread-safe.
class LaunchTimes {
 public:
  explicit LaunchTimes(TimedLaunch launch) : launch_(std::move(launch)) {}

  // Returns the number to pass to EndRun.
  size_t BeginRun(std::vector<Core> cores);
  void EndRun(size_t run);
  void End();
  TimedLaunch Get() const;

 private:
  mutable absl::Mutex mutex_;
  TimedLaunch launch_ ABSL_GUARDED_BY(mutex_);
};

// Thread-safe. Costs next to nothing once it is full.
class FirstLaunches {
 public:
  static constexpr int kMostOfProgram = 32;
  static constexpr size_t kMost = 1024;

  // Returns null if the launch is not among the first.
  std::shared_ptr<LaunchTimes> Begin(int64_t program_id, RunId run_id);

  // In the order in which they began.
  std::vector<TimedLaunch> Get() const;

 private:
  std::atomic<bool> full_{false};
  mutable absl::Mutex mutex_;
  std::map<int64_t, int> of_program_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<LaunchTimes>> launches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_FIRST_LAUNCHES_H_
