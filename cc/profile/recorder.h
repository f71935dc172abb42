// What the runtime reports about itself while a profile is taken.
#ifndef TF_TPU_EXT_CC_PROFILE_RECORDER_H_
#define TF_TPU_EXT_CC_PROFILE_RECORDER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"

namespace tf_tpu_ext {

struct CompiledProgram;

// Nanoseconds on the clock of TensorFlow's profiler; nullopt if no profile was being taken.
using ProfileTime = std::optional<int64_t>;

// One run of a program.
struct RecordedRun {
  std::shared_ptr<const CompiledProgram> program;
  LaunchId launch_id;
  RunId run_id;
  // The cores that the run serves; the first one runs it. Several cores share a run if they belong
  // to a group of replicas or to one replica, or if it is the run of a shared update.
  std::vector<Core> cores;
  // The number by which XLA knows the first core.
  Core core_in_pod;
  int64_t begin = 0;
  int64_t end = 0;
  // If the run of a shared update first combines the replicas' values: until when, and how many
  // bytes.
  ProfileTime combined_until;
  int64_t combined_bytes = 0;
};

// A core's wait for something other than its own work.
struct RecordedWait {
  // What XProf shows: "all-reduce", "infeed", ...
  std::string name;
  // The Python line of the op it waited for, if known.
  std::string source;
  // The meeting in a collective: waits with the same meeting have waited for each other. Empty for
  // other waits.
  std::string meeting;
  int64_t bytes = 0;
  RunId run_id;
  // Whether a run has waited: then all the cores that it serves have, and `core` is the one that
  // runs it.
  bool in_run = false;
  // In a meeting, the core's number in the pod.
  Core core;
  // The core it waited for. Set when recorded if a launch has waited for its cores; FindWhoWasLast
  // sets it for meetings.
  std::optional<Core> waited_for;
  int64_t begin = 0;
  int64_t end = 0;
};

struct Recording {
  std::vector<RecordedRun> runs;
  std::vector<RecordedWait> waits;
  // How many more were dropped.
  int64_t dropped = 0;
};

// Thread-safe. While no profile is taken, finding that out costs one relaxed load.
class ProfileRecorder {
 public:
  bool active() const { return active_.load(std::memory_order_relaxed); }

  // The time if a profile is being taken.
  ProfileTime Now() const;

  // Forgets what was recorded before.
  void Start();
  void Stop();
  Recording Take();

  // Ignored while no profile is taken.
  void Add(RecordedRun run);
  void Add(RecordedWait wait);

 private:
  // Whether there is room for one more.
  bool HasRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::atomic<bool> active_{false};
  absl::Mutex mutex_;
  Recording recording_ ABSL_GUARDED_BY(mutex_);
};

// The time if a profile is being taken; `recorder` may be null, as in tests.
ProfileTime NowIfRecording(const ProfileRecorder* recorder);

// A run's wait, from construction until End. Does nothing if no profile is being taken at
// construction. Copies are the same wait: exactly one of them must end it.
class ProfiledWait {
 public:
  ProfiledWait(ProfileRecorder* recorder, const std::string& name, RunId run_id, Core core);

  // Null if no profile is taken: there is nothing to describe then.
  RecordedWait* wait() { return wait_.has_value() ? &*wait_ : nullptr; }
  void End();

 private:
  ProfileRecorder* recorder_;
  std::optional<RecordedWait> wait_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROFILE_RECORDER_H_
