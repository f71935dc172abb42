// One run of a program.
#ifndef TF_TPU_EXT_CC_RUNTIME_PROGRAM_RUN_H_
#define TF_TPU_EXT_CC_RUNTIME_PROGRAM_RUN_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cc/abi/xla/thunk_params.h"
#include "cc/base/compute_pool.h"
#include "cc/base/core_context.h"
#include "cc/base/number.h"
#include "cc/base/run_scope.h"
#include "cc/profile/recorder.h"
#include "cc/program/value_numbers.h"
#include "cc/runtime/program.h"
#include "tensorflow/core/framework/tensor.h"
#include "xla/backends/cpu/runtime/buffer_allocations.h"
#include "xla/backends/cpu/runtime/thunk.h"
#include "xla/executable_run_options.h"
#include "xla/ffi/execution_context.h"
#include "xla/service/buffer_assignment.h"
#include "xla/service/computation_placer.h"
#include "xla/service/cpu/cpu_executable.h"
#include "xla/service/cpu/cpu_executable_run_options.h"
#include "xla/stream_executor/device_address.h"

namespace tf_tpu_ext {

// Owns everything that the executable's thunks use until they are done. Not locked: Start and
// Finish come one after the other, and in between only the thunks use it.
class Program::Run {
 public:
  // The program must outlive the run. It does while a step holds it.
  Run(Program* program, CoreContext core, Arguments arguments, RunOptions options, Done done);

  // Starts the run, which keeps itself alive until it has called `done` on the thread that ends the
  // last thunk, possibly this one.
  static void Start(std::shared_ptr<Run> run);

 private:
  // Runs thunks on the pool that may run at the same time.
  class PoolTaskRunner : public TaskRunner {
   public:
    explicit PoolTaskRunner(ComputePool* pool) : pool_(*pool) {}
    void operator()(xla::cpu::Thunk::Task task) override {
      pool_.Schedule(RunScope::Extend(std::move(task)));
    }
    std::optional<int64_t> current_worker_id() const override {
      // XLA only asks whether there is a value.
      return pool_.IsCaller() ? std::optional<int64_t>(0) : std::nullopt;
    }

   private:
    ComputePool& pool_;
  };

  // What error messages call the program.
  std::string Name() const;

  // Fills in everything that the thunks receive.
  absl::Status Prepare();
  // Gives each of XLA's allocations its memory: an argument's, a result's, or scratch.
  absl::Status BindBuffers();
  absl::StatusOr<stream_executor::DeviceAddressBase> BindParameter(
      const xla::BufferAllocation& allocation);
  absl::StatusOr<stream_executor::DeviceAddressBase> BindResult(
      const xla::BufferAllocation& allocation, ResultNumber number);
  absl::StatusOr<stream_executor::DeviceAddressBase> BindScratch(
      const xla::BufferAllocation& allocation, size_t place);
  absl::Status AllocateCopies();
  // Whether to fill unwritten memory and padding of inputs, so that it shows if a watched program
  // uses them.
  bool FillsMemory() const { return program_->compiled().probes != nullptr; }
  absl::Status FillPadding();
  void TakeCombinedOutputs();

  void Finish(absl::Status status);
  // Records the run in the profile.
  void Record(int64_t begin);
  absl::Status CollectOutputs(Outputs* outputs);
  tensorflow::Tensor TakeResult(ResultNumber number) const;
  absl::StatusOr<tensorflow::Tensor> CutToSize(tensorflow::Tensor padded,
                                               OutputNumber output) const;

  Program* const program_;
  xla::cpu::CpuExecutable& executable_;
  CoreContext core_;
  Arguments arguments_;
  const RunOptions run_options_;
  Done done_;
  absl::Time begin_;
  ProfileTime profile_begin_;

  ByNumber<ResultNumber, tensorflow::Tensor> results_;
  std::vector<tensorflow::Tensor> scratch_;
  // The thunks get pointers to the following members.
  std::optional<xla::cpu::BufferAllocations> buffers_;
  std::optional<xla::DeviceAssignment> device_assignment_;
  xla::cpu::CpuExecutableRunOptions cpu_options_;
  xla::ExecutableRunOptions options_;
  xla::ffi::ExecutionContext ffi_context_;
  std::optional<xla::cpu::Thunk::CollectiveExecuteParams> collective_params_;
  std::optional<xla::cpu::Thunk::CustomCallExecuteParams> custom_call_params_;
  PoolTaskRunner task_runner_;
  xla::cpu::Thunk::ExecuteParams params_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_PROGRAM_RUN_H_
