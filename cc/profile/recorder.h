// What the runtime tells of itself while a profile is taken.
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

// Nanoseconds of the clock of TensorFlow's profiler; none if no profile was taken.
using ProfileTime = std::optional<int64_t>;

// One run of a program.
struct RecordedRun {
  std::shared_ptr<const CompiledProgram> program;
  LaunchId launch_id;
  RunId run_id;
  // The cores that it serves; the first one runs it. Several share a run if they belong to a group
  // of replicas or to one replica, or if the run is that of a shared update.
  std::vector<Core> cores;
  // The number by which XLA knows the first core.
  Core core_in_pod;
  int64_t begin = 0;
  int64_t end = 0;
  // Where the run of a shared update combines the values of the replicas first: until when, and how
  // many bytes.
  ProfileTime combined_until;
  int64_t combined_bytes = 0;
};

// A core has waited for something else than its own work.
struct RecordedWait {
  // What XProf shows: "all-reduce", "infeed", ...
  std::string name;
  // The Python line of what it waited for, if known.
  std::string source;
  // The meeting of a collective: waits with the same one have waited for each other. Empty for
  // others.
  std::string meeting;
  int64_t bytes = 0;
  RunId run_id;
  // Whether a run has waited: then all the cores that it serves have, and `core` is the one that
  // runs it.
  bool in_run = false;
  // In a meeting the number in the pod.
  Core core;
  // Whom it waited for. Set for a launch that has waited for its cores.
  std::optional<Core> waited_for;
  int64_t begin = 0;
  int64_t end = 0;
};

struct Recording {
  std::vector<RecordedRun> runs;
  std::vector<RecordedWait> waits;
  // How many more there were.
  int64_t dropped = 0;
};

// Thread-safe. As long as no profile is taken it costs one relaxed load to find that out.
class ProfileRecorder {
 public:
  bool active() const { return active_.load(std::memory_order_relaxed); }

  // The time if a profile is taken.
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

// The time if a profile is taken; `recorder` may be null, as in tests.
ProfileTime NowIfRecording(const ProfileRecorder* recorder);

// A wait of a run, from where this is made until End. Nothing if no profile is taken then. Copies
// are the same wait: one of them is to end it.
class ProfiledWait {
 public:
  ProfiledWait(ProfileRecorder* recorder, const std::string& name, RunId run_id, Core core);

  // Null if no profile is taken: then there is nothing to describe.
  RecordedWait* wait() { return wait_.has_value() ? &*wait_ : nullptr; }
  void End();

 private:
  ProfileRecorder* recorder_;
  std::optional<RecordedWait> wait_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROFILE_RECORDER_H_
