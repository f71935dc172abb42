// A program as one core runs it.
#ifndef TF_TPU_EXT_CC_RUNTIME_PROGRAM_H_
#define TF_TPU_EXT_CC_RUNTIME_PROGRAM_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cc/base/core_context.h"
#include "cc/base/core_numbers.h"
#include "cc/profile/recorder.h"
#include "cc/program/compiled_program.h"
#include "cc/program/value_numbers.h"
#include "cc/runtime/kept_tensors.h"
#include "cc/runtime/program_services.h"
#include "cc/runtime/result_layout.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

class HostFunctions;

// What takes less is done before another thread has woken up.
inline constexpr absl::Duration kWorthAThread = absl::Microseconds(100);

// How one run goes.
struct RunOptions {
  // Whether the run keeps to the thread that starts it; else it spreads over the compute pool.
  bool on_one_thread = false;
  // Arguments that nobody else will read: the program may write its results there.
  std::vector<ArgumentNumber> overwritable;
  // All cores that the run serves, if there are others than its own.
  std::vector<Core> served_cores;
  // Of a shared update while a profile is taken: when its cores began to combine their values,
  // which counts as a part of the run, and when they had.
  ProfileTime combines_from;
  ProfileTime combined_until;
  int64_t combined_bytes = 0;
};

// Roughly how much memory the program takes, in bytes, with the programs that it consists of.
int64_t SizeInMemory(const CompiledProgram& compiled);

// Thread-safe. Virtual is what tests replace.
class Program {
 public:
  virtual ~Program() = default;

  using Done = std::function<void(absl::Status, Outputs)>;

  // Makes what the program needs to run, and the programs that it consists of.
  static absl::StatusOr<std::shared_ptr<Program>> Create(
      const ProgramServices& services, std::shared_ptr<const CompiledProgram> compiled);

  const CompiledProgram& compiled() const { return *compiled_; }
  const std::shared_ptr<const CompiledProgram>& shared_compiled() const { return compiled_; }

  // The functions on the host that it calls by itself; null if there are none.
  const std::shared_ptr<HostFunctions>& host_functions() const { return parts_.host_functions; }
  // The program of compiled().shared_update, or null.
  const std::shared_ptr<Program>& shared_update() const { return parts_.shared_update; }
  // The program of compiled().batched, or null.
  const std::shared_ptr<Program>& batched() const { return parts_.batched; }

  // Starts the program for one core and returns; `done` gets the outputs, on some thread. The
  // arguments are read in place and must not change meanwhile.
  virtual void Start(CoreContext core, Arguments arguments, RunOptions options, Done done);

  // How long runs took lately; infinite before the first one has ended.
  absl::Duration typical_run() const {
    const int64_t nanoseconds = typical_nanoseconds_.load(std::memory_order_relaxed);
    return nanoseconds < 0 ? absl::InfiniteDuration() : absl::Nanoseconds(nanoseconds);
  }

  // True for the first who asks: whoever launches it first tells what its arguments are called.
  bool LacksNames() { return !named_.load(std::memory_order_relaxed) && !named_.exchange(true); }

  // Takes back the combined outputs of a run, for the next one.
  void Recycle(std::vector<tensorflow::Tensor> combined_outputs);

  // The program whose replicas run each for itself, in the place of one that is batched. Compiled
  // when it is first asked for, which takes its time.
  absl::StatusOr<std::shared_ptr<Program>> Alone();
  // The same if it has been asked for, else null.
  std::shared_ptr<Program> AloneIfBuilt();

  int num_slots() const { return compiled_->num_slots(); }
  // The slot that runs on the core. An error names the cores that the program runs on.
  absl::StatusOr<Slot> SlotOfCore(Core core) const;

 protected:
  // What it consists of; null where it has none.
  struct Parts {
    std::shared_ptr<HostFunctions> host_functions;
    std::shared_ptr<Program> shared_update;
    std::shared_ptr<Program> batched;
  };

  Program(const ProgramServices& services, std::shared_ptr<const CompiledProgram> compiled,
          Parts parts)
      : services_(services), compiled_(std::move(compiled)), parts_(std::move(parts)) {}

  virtual absl::StatusOr<std::shared_ptr<Program>> BuildAlone() const;

  // Tells typical_run() how long a run took.
  void RecordRun(absl::Duration time);

 private:
  class Run;

  static absl::StatusOr<Parts> CreateParts(const ProgramServices& services,
                                           const CompiledProgram& compiled);

  const ProgramServices services_;
  const std::shared_ptr<const CompiledProgram> compiled_;
  const Parts parts_;
  // Written by Create alone.
  ResultLayout layout_;

  // Negative before the first run has ended.
  std::atomic<int64_t> typical_nanoseconds_{-1};
  std::atomic<bool> named_{false};
  KeptTensors scratch_;
  KeptTensors combined_outputs_;

  // Held while the program of one replica is compiled, so that it is compiled once. Steps that only
  // ask whether there is one take mutex_ and don't wait.
  absl::Mutex building_ ABSL_ACQUIRED_BEFORE(mutex_);
  absl::Mutex mutex_;
  std::shared_ptr<Program> alone_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_PROGRAM_H_
