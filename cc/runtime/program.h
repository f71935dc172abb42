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

// A shorter run is over before another thread has woken up.
inline constexpr absl::Duration kWorthAThread = absl::Microseconds(100);

// Options of one run.
struct RunOptions {
  // Whether the run stays on the thread that starts it, rather than use the whole compute pool.
  bool on_one_thread = false;
  // Arguments that nobody else will read, so the program may write its results there.
  std::vector<ArgumentNumber> overwritable;
  // All cores that the run serves, if there are any besides its own.
  std::vector<Core> served_cores;
  // For a shared update while a profile is being taken: when its cores began and finished combining
  // their values, which counts as part of the run.
  ProfileTime combines_from;
  ProfileTime combined_until;
  int64_t combined_bytes = 0;
};

// Approximately how much memory the program uses, in bytes, including the programs that it consists
// of.
int64_t SizeInMemory(const CompiledProgram& compiled);

// Thread-safe. Methods that tests replace are virtual.
class Program {
 public:
  virtual ~Program() = default;

  using Done = std::function<void(absl::Status, Outputs)>;

  // Creates what the program needs to run, and the programs that it consists of.
  static absl::StatusOr<std::shared_ptr<Program>> Create(
      const ProgramServices& services, std::shared_ptr<const CompiledProgram> compiled);

  const CompiledProgram& compiled() const { return *compiled_; }
  const std::shared_ptr<const CompiledProgram>& shared_compiled() const { return compiled_; }

  // The host functions that the program itself calls. Null if there are none.
  const std::shared_ptr<HostFunctions>& host_functions() const { return parts_.host_functions; }
  // The program of compiled().shared_update, or null.
  const std::shared_ptr<Program>& shared_update() const { return parts_.shared_update; }
  // The program of compiled().batched, or null.
  const std::shared_ptr<Program>& batched() const { return parts_.batched; }

  // Starts the program for one core and returns. `done` receives the outputs on some thread. The
  // arguments are read in place and must not change in the meantime.
  virtual void Start(CoreContext core, Arguments arguments, RunOptions options, Done done);

  // How long recent runs took. Infinite until the first one has ended.
  absl::Duration typical_run() const {
    const int64_t nanoseconds = typical_nanoseconds_.load(std::memory_order_relaxed);
    return nanoseconds < 0 ? absl::InfiniteDuration() : absl::Nanoseconds(nanoseconds);
  }

  // Returns true to the first caller only: the op that first launches the program provides the
  // names of its arguments.
  bool LacksNames() { return !named_.load(std::memory_order_relaxed) && !named_.exchange(true); }

  // Takes back the combined outputs of a run for the next one.
  void Recycle(std::vector<tensorflow::Tensor> combined_outputs);

  // For a batched program, the program that runs its replicas individually. Compiled on first use,
  // which takes time.
  absl::StatusOr<std::shared_ptr<Program>> Alone();
  // The same program if it has been compiled, otherwise null.
  std::shared_ptr<Program> AloneIfBuilt();

  int num_slots() const { return compiled_->num_slots(); }
  // The slot that runs on the core. An error lists the cores that the program runs on.
  absl::StatusOr<Slot> SlotOfCore(Core core) const;

 protected:
  // The parts of the program. Null if it has no such part.
  struct Parts {
    std::shared_ptr<HostFunctions> host_functions;
    std::shared_ptr<Program> shared_update;
    std::shared_ptr<Program> batched;
  };

  Program(const ProgramServices& services, std::shared_ptr<const CompiledProgram> compiled,
          Parts parts)
      : services_(services), compiled_(std::move(compiled)), parts_(std::move(parts)) {}

  virtual absl::StatusOr<std::shared_ptr<Program>> BuildAlone() const;

  // Updates typical_run() with the duration of a run.
  void RecordRun(absl::Duration time);

 private:
  class Run;

  static absl::StatusOr<Parts> CreateParts(const ProgramServices& services,
                                           const CompiledProgram& compiled);

  const ProgramServices services_;
  const std::shared_ptr<const CompiledProgram> compiled_;
  const Parts parts_;
  // Written only by Create.
  ResultLayout layout_;

  // Negative until the first run has ended.
  std::atomic<int64_t> typical_nanoseconds_{-1};
  std::atomic<bool> named_{false};
  KeptTensors scratch_;
  KeptTensors combined_outputs_;

  // Held while the program of one replica is being compiled, so that it is compiled only once.
  // Steps that only ask whether it exists acquire mutex_ and don't wait.
  absl::Mutex building_ ABSL_ACQUIRED_BEFORE(mutex_);
  absl::Mutex mutex_;
  std::shared_ptr<Program> alone_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_PROGRAM_H_
