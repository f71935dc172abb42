// A program as one core runs it.
#ifndef TF_TPU_EXT_CC_RUNTIME_PROGRAM_H_
#define TF_TPU_EXT_CC_RUNTIME_PROGRAM_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cc/base/core_context.h"
#include "cc/program/compiled_program.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"

namespace tf_tpu_ext {

class HostFunctions;

// What takes less is done before another thread has woken up.
inline constexpr absl::Duration kWorthAThread = absl::Microseconds(100);

// How one run goes.
struct RunOptions {
  // Whether the run keeps to the thread that starts it; else it spreads over the compute pool.
  bool on_one_thread = false;
  // Arguments that nobody else will read: the program may write its results there.
  std::vector<int> overwritable;
};

class Program {
 public:
  using Done = std::function<void(absl::Status, std::vector<tensorflow::Tensor>)>;

  // Makes what the program needs to run, and the programs that it consists of.
  static absl::StatusOr<std::shared_ptr<Program>> Create(
      std::shared_ptr<const CompiledProgram> compiled);

  const CompiledProgram& compiled() const { return *compiled_; }

  // The functions on the host that it calls by itself; null if there are none.
  const std::shared_ptr<HostFunctions>& host_functions() const { return host_functions_; }
  // The program of compiled().shared_update, or null.
  const std::shared_ptr<Program>& shared_update() const { return shared_update_; }
  // The program of compiled().stacked, or null.
  const std::shared_ptr<Program>& stacked() const { return stacked_; }

  // Starts the program for one core and returns; `done` gets the outputs, on some thread. The
  // arguments are read in place and must not change meanwhile.
  void Start(CoreContext core, std::vector<tensorflow::Tensor> arguments, RunOptions options,
             Done done);

  // How long runs took lately; infinite before the first one has ended.
  absl::Duration typical_run() const {
    const int64_t nanoseconds = typical_nanoseconds_.load(std::memory_order_relaxed);
    return nanoseconds < 0 ? absl::InfiniteDuration() : absl::Nanoseconds(nanoseconds);
  }

  // Takes back the combined outputs of a run, for the next one.
  void Recycle(std::vector<tensorflow::Tensor> combined_outputs);

  // The program whose replicas run each for itself, in the place of one that is stacked. Compiled
  // when it is first asked for, which takes its time.
  absl::StatusOr<std::shared_ptr<Program>> Alone();
  // The same if it has been asked for, else null.
  std::shared_ptr<Program> AloneIfBuilt();

  int num_slots() const { return compiled_->num_replicas * compiled_->num_cores_per_replica; }
  // The slot that runs on the core. An error names the cores that the program runs on.
  absl::StatusOr<int> SlotOfCore(int core) const;

 private:
  // One element of the executable's result tuple.
  struct ResultBuffer {
    tensorflow::DataType dtype = tensorflow::DT_INVALID;
    int64_t allocation = -1;
    int64_t offset = 0;
    tensorflow::TensorShape shape;
  };
  class Run;

  explicit Program(std::shared_ptr<const CompiledProgram> compiled)
      : compiled_(std::move(compiled)) {}
  absl::Status CreateParts();
  absl::Status Prepare();

  void RecordRun(absl::Duration time);

  const std::shared_ptr<const CompiledProgram> compiled_;
  std::shared_ptr<HostFunctions> host_functions_;
  std::shared_ptr<Program> shared_update_;
  std::shared_ptr<Program> stacked_;
  // By XLA result number; `result_of_output_` maps outputs to it, with -1 for constants.
  std::vector<ResultBuffer> results_;
  std::vector<int> result_of_output_;
  // The result that owns an allocation, or -1.
  std::vector<int> result_of_allocation_;
  // For each result the argument whose memory it takes over, or -1.
  std::vector<int> argument_of_result_;

  std::atomic<int64_t> typical_nanoseconds_{-1};

  absl::Mutex building_ ABSL_ACQUIRED_BEFORE(mutex_);
  absl::Mutex mutex_;
  std::shared_ptr<Program> alone_ ABSL_GUARDED_BY(mutex_);
  // Scratch memory of finished runs, kept for the next ones.
  std::vector<std::vector<tensorflow::Tensor>> free_scratch_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::vector<tensorflow::Tensor>> free_combined_outputs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_PROGRAM_H_
