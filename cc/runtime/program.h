// A compiled program and how one core runs it.
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
#include "cc/program/padding_stats.h"
#include "cc/program/taken_queues.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"

namespace xla {
class DeviceAssignment;
class Executable;
}  // namespace xla

namespace tf_tpu_ext {

class HostFunctions;
struct SharedUpdate;
struct StackedReplicas;

// What the compiler hands to the runtime.
struct CompiledProgram {
  struct Output {
    tensorflow::DataType dtype = tensorflow::DT_INVALID;
    // Set when the compiler knew the value: such an output is not computed.
    std::shared_ptr<const tensorflow::Tensor> constant;
    // Dimensions that the executable pads, each with the number of the result that holds its true
    // size, an int32.
    std::vector<std::pair<int, int>> dynamic_sizes;
  };
  // Who gets what of a program whose partitions run as one: argument and output numbers by core.
  struct CoreSlice {
    std::vector<int> arguments;
    std::vector<int> outputs;
  };

  std::string name;
  int64_t id = 0;
  int num_replicas = 1;
  int num_cores_per_replica = 1;
  // Null where `stacked` is set.
  std::shared_ptr<xla::Executable> executable;
  // The physical core of every slot, that is replica * num_cores_per_replica + logical core. Empty
  // for a program of one core, which runs wherever it is sent.
  std::vector<int> cores;
  // The same as XLA wants it, by replica and partition; null where `cores` is empty.
  std::shared_ptr<const xla::DeviceAssignment> device_assignment;
  // For each parameter of the executable the argument it takes.
  std::vector<int> parameter_arguments;
  std::vector<Output> outputs;
  // What it calls on the host by itself; null if there is nothing.
  std::shared_ptr<HostFunctions> host_functions;
  // What the program takes from queues of its cores.
  TakenQueues takes;
  // Empty unless the replica's cores share one executable run (placement without SPMD).
  std::vector<CoreSlice> core_slices;
  // Inputs that the host has padded.
  std::vector<PaddedArgument> padded_arguments;
  // What runs once after all replicas; null if nothing was split off.
  std::shared_ptr<const SharedUpdate> shared_update;
  // So many outputs at the end are for the shared update: their memory comes back.
  int num_combined_outputs = 0;
  // How the replicas run; null if each runs for itself.
  std::shared_ptr<const StackedReplicas> stacked;
  // The variables that the executable overwrites, if it may: numbers of an argument and an output.
  std::vector<std::pair<int, int>> overwritten_variables;
  // Whether it may wait for other cores or the host.
  bool waits = true;
};

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

  static absl::StatusOr<std::shared_ptr<Program>> Create(CompiledProgram compiled);

  const CompiledProgram& compiled() const { return compiled_; }

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

  int num_slots() const { return compiled_.num_replicas * compiled_.num_cores_per_replica; }
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

  explicit Program(CompiledProgram compiled) : compiled_(std::move(compiled)) {}
  absl::Status Prepare();

  void RecordRun(absl::Duration time);

  const CompiledProgram compiled_;
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
