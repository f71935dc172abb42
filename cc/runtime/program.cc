#define EIGEN_USE_THREADS

#include "cc/runtime/program.h"

#include <cstring>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cc/base/compute_pool.h"
#include "cc/base/kernel_threads.h"
#include "cc/base/memory.h"
#include "cc/base/process.h"
#include "cc/base/tensor_copy.h"
#include "cc/runtime/padding_stats.h"
#include "cc/transfer/host_functions.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tsl/profiler/lib/traceme.h"
#include "tsl/profiler/lib/traceme_encode.h"
#include "unsupported/Eigen/CXX11/Tensor"
#include "xla/backends/cpu/runtime/buffer_allocations.h"
#include "xla/backends/cpu/runtime/thunk.h"
#include "xla/backends/cpu/runtime/thunk_executor.h"
#include "xla/executable_run_options.h"
#include "xla/ffi/execution_context.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/service/computation_placer.h"
#include "xla/service/cpu/cpu_executable.h"
#include "xla/service/cpu/cpu_executable_run_options.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using stream_executor::DeviceAddressBase;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// XLA:CPU reads its buffers with aligned vector loads.
constexpr uintptr_t kAlignment = 64;

bool IsAligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % kAlignment == 0; }

Tensor AllocateBytes(int64_t bytes) {
  return Tensor(tensorflow::cpu_allocator(), tensorflow::DT_UINT8, TensorShape({bytes}));
}

xla::cpu::CpuExecutable& CpuExecutableOf(const CompiledProgram& compiled) {
  return static_cast<xla::cpu::CpuExecutable&>(*compiled.executable);
}

// Lets YNNPACK, which computes XLA's matrix products, share work out to the threads of ComputePool.
// Lives as long as the process: TensorFlow does not export what destroys it.
absl::StatusOr<xla::cpu::Thunk::YnnParams*> YnnThreads() {
  static auto* threads = [] {
    xla::ExecutableRunOptions options;
    options.set_intra_op_thread_pool(Process::Get().compute_pool->EigenDevice());
    return new absl::StatusOr<xla::cpu::Thunk::YnnParams>(
        xla::cpu::Thunk::YnnParams::Create(&options));
  }();
  if (!threads->ok()) return threads->status();
  return &**threads;
}

class PoolTaskRunner : public xla::cpu::Thunk::TaskRunner {
 public:
  void operator()(xla::cpu::Thunk::Task task) override {
    Process::Get().compute_pool->Schedule(std::move(task));
  }
};

}  // namespace

// One core's run: owns all that the thunks use until they are done.
class Program::Run {
 public:
  Run(Program* program, CoreContext core, Arguments arguments, RunOptions options, Done done)
      : program_(program),
        core_(core),
        arguments_(std::move(arguments)),
        run_options_(std::move(options)),
        done_(std::move(done)) {}

  // Starts the run, which keeps itself alive until it has called `done`.
  static void Start(std::shared_ptr<Run> run) {
    tsl::profiler::TraceMe trace([&] {
      return tsl::profiler::TraceMeEncode(absl::StrCat("TPU core ", run->core_.core),
                                          {{"program", run->program_->compiled_->name},
                                           {"replica", run->core_.replica.value()},
                                           {"launch", run->core_.launch_id.value()}});
    });
    run->begin_ = absl::Now();
    if (absl::Status status = run->Prepare(); !status.ok()) {
      run->done_(std::move(status), {});
      return;
    }
    xla::cpu::ThunkExecutor& thunks = CpuExecutableOf(*run->program_->compiled_).thunks();
    auto event = thunks.Execute(run->params_);
    event.AndThen([run = std::move(run), event = event.AsPtr()] {
      run->Finish(event.IsError() ? event.GetError() : absl::OkStatus());
    });
  }

 private:
  absl::Status Prepare() {
    const CompiledProgram& compiled = *program_->compiled_;
    xla::cpu::CpuExecutable& executable = CpuExecutableOf(compiled);
    if (absl::Status status = BindBuffers(executable); !status.ok()) return status;

    if (compiled.device_assignment != nullptr) {
      device_assignment_ = *compiled.device_assignment;
    } else {
      device_assignment_.emplace(1, 1);
      (*device_assignment_)(0, 0) = core_.core.value();
    }
    const Process& process = Process::Get();
    cpu_options_.set_collectives(process.xla_collectives);
    options_.set_run_id(xla::RunId(core_.run_id.value()));
    options_.set_device_ordinal(core_.core.value());
    options_.set_device_assignment(&*device_assignment_);
    const Eigen::ThreadPoolDevice* threads = run_options_.on_one_thread
                                                 ? process.kernel_threads->OfCaller().device
                                                 : process.compute_pool->EigenDevice();
    options_.set_intra_op_thread_pool(threads);
    options_.set_cpu_executable_run_options(&cpu_options_);
    if (absl::Status status = ffi_context_.Insert(&core_); !status.ok()) return status;
    options_.set_ffi_execution_context(&ffi_context_);

    auto collective_params = xla::cpu::Thunk::CollectiveExecuteParams::Create(&options_);
    if (!collective_params.ok()) return collective_params.status();
    collective_params_.emplace(*std::move(collective_params));
    auto custom_call_params = xla::cpu::Thunk::CustomCallExecuteParams::Create(&options_);
    if (!custom_call_params.ok()) return custom_call_params.status();
    custom_call_params_.emplace(*std::move(custom_call_params));

    params_.function_library = executable.function_library();
    params_.buffer_allocations = &*buffers_;
    params_.intra_op_threadpool = threads;
    if (!run_options_.on_one_thread) {
      params_.task_runner = &task_runner_;
      if (executable.has_ynn_fusions()) {
        auto ynn_threads = YnnThreads();
        if (!ynn_threads.ok()) return ynn_threads.status();
        params_.ynn_params = *ynn_threads;
      }
    }
    params_.collective_params = &*collective_params_;
    params_.custom_call_params = &*custom_call_params_;
    params_.run_id = core_.run_id.value();
    params_.device_ordinal = core_.core.value();
    return absl::OkStatus();
  }

  // What errors call the program.
  std::string Name() const { return absl::StrCat("Program ", program_->compiled_->name); }

  absl::Status BindBuffers(xla::cpu::CpuExecutable& executable) {
    const auto& allocations = executable.buffer_assignment().Allocations();
    absl::InlinedVector<DeviceAddressBase, 8> buffers(allocations.size());
    results_.resize(program_->results_.size());
    TakeCombinedOutputs();
    scratch_ = TakeScratch();
    size_t next_scratch = 0;
    for (const xla::BufferAllocation& allocation : allocations) {
      const int64_t index = allocation.index();
      if (allocation.is_thread_local()) continue;
      if (allocation.is_constant()) {
        // The list has an element for every allocation, empty where it is no constant.
        if (index < static_cast<int64_t>(executable.constants().size())) {
          buffers[index] = executable.constants()[index].AsDeviceAddress();
        }
      } else if (allocation.is_entry_computation_parameter()) {
        auto address = BindParameter(allocation);
        if (!address.ok()) return address.status();
        buffers[index] = *address;
      } else if (const auto number = program_->result_of_allocation_[index]; number.has_value()) {
        const ResultBuffer& buffer = program_->results_[*number];
        Tensor& result = results_[*number];
        if (result.dtype() != buffer.dtype || result.shape() != buffer.shape) {
          result = Tensor(tensorflow::cpu_allocator(), buffer.dtype, buffer.shape);
        }
        absl::Status status = CheckMemory(result, Name(), "a result on each core");
        if (!status.ok()) return status;
        buffers[index] = DeviceAddressBase(result.data(), allocation.size());
      } else {
        if (next_scratch == scratch_.size()) scratch_.push_back(AllocateBytes(allocation.size()));
        absl::Status status =
            CheckMemory(scratch_[next_scratch], Name(), "intermediate values on each core");
        if (!status.ok()) {
          // What is kept for the next run is whole.
          scratch_.clear();
          return status;
        }
        buffers[index] = DeviceAddressBase(scratch_[next_scratch++].data(), allocation.size());
      }
    }
    buffers_.emplace(std::move(buffers));
    return absl::OkStatus();
  }

  absl::StatusOr<DeviceAddressBase> BindParameter(const xla::BufferAllocation& allocation) {
    const ParameterNumber parameter(static_cast<int>(allocation.parameter_number()));
    const ArgumentNumber argument = program_->compiled_->parameter_arguments[parameter];
    Tensor& tensor = arguments_[argument];
    const int64_t bytes = tensor.TotalBytes();
    if (bytes != allocation.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "Argument ", argument, " of program ", program_->compiled_->name, " is ",
          tensorflow::DataTypeString(tensor.dtype()), tensor.shape().DebugString(), " (", bytes,
          " bytes); the program was compiled for ", allocation.size(), " bytes."));
    }
    // An allocation that is not read-only is overwritten by the program.
    const bool needs_copy =
        !allocation.is_readonly() && !absl::c_linear_search(run_options_.overwritable, argument);
    if (needs_copy || !IsAligned(tensor.data())) {
      Tensor copy(tensorflow::cpu_allocator(), tensor.dtype(), tensor.shape());
      absl::Status status = CheckMemory(copy, Name(), "an argument on each core");
      if (!status.ok()) return status;
      if (bytes > 0) std::memcpy(copy.data(), tensor.data(), bytes);
      tensor = std::move(copy);
    }
    return DeviceAddressBase(tensor.data(), bytes);
  }

  std::vector<Tensor> TakeScratch() {
    absl::MutexLock lock(&program_->mutex_);
    if (program_->free_scratch_.empty()) return {};
    std::vector<Tensor> scratch = std::move(program_->free_scratch_.back());
    program_->free_scratch_.pop_back();
    return scratch;
  }

  // Results for the shared update live in memory that earlier runs used for them.
  void TakeCombinedOutputs() {
    const size_t count = program_->compiled_->num_combined_outputs;
    if (count == 0) return;
    absl::MutexLock lock(&program_->mutex_);
    if (program_->free_combined_outputs_.empty()) return;
    absl::c_move(program_->free_combined_outputs_.back(), results_.end() - count);
    program_->free_combined_outputs_.pop_back();
  }

  void Finish(absl::Status status) {
    program_->RecordRun(absl::Now() - begin_);
    Outputs outputs;
    if (status.ok()) status = CollectOutputs(&outputs);
    if (!scratch_.empty()) {
      absl::MutexLock lock(&program_->mutex_);
      program_->free_scratch_.push_back(std::move(scratch_));
    }
    arguments_.clear();
    done_(std::move(status), std::move(outputs));
  }

  absl::Status CollectOutputs(Outputs* outputs) {
    const CompiledProgram& compiled = *program_->compiled_;
    outputs->resize(compiled.outputs.size());
    for (OutputNumber output : outputs->numbers()) {
      const std::optional<ResultNumber> result = program_->result_of_output_[output];
      if (result.has_value()) {
        TF_ASSIGN_OR_RETURN((*outputs)[output], CutToSize(TakeResult(*result), output));
      } else {
        (*outputs)[output] = *compiled.outputs[output].constant;
      }
    }
    return absl::OkStatus();
  }

  Tensor TakeResult(ResultNumber result) {
    const ResultBuffer& buffer = program_->results_[result];
    if (program_->result_of_allocation_[buffer.allocation] == result) return results_[result];
    if (const auto argument = program_->argument_of_result_[result]; argument.has_value()) {
      return arguments_[*argument];  // the caller's, or a copy of our own
    }
    const auto* data =
        static_cast<const char*>(buffers_->GetDeviceAddressUnchecked(buffer.allocation).opaque());
    Tensor copy(tensorflow::cpu_allocator(), buffer.dtype, buffer.shape);
    if (copy.TotalBytes() > 0) std::memcpy(copy.data(), data + buffer.offset, copy.TotalBytes());
    return copy;
  }

  absl::StatusOr<Tensor> CutToSize(Tensor padded, OutputNumber output) {
    TensorShape shape = padded.shape();
    for (const auto& [dimension, result] : program_->compiled_->outputs[output].dynamic_sizes) {
      const int32_t size = TakeResult(result).scalar<int32_t>()();
      if (size < 0 || size > padded.dim_size(dimension)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "XLA computed a size of ", size, " for dimension ", dimension, " of result ", output,
            "; it must be from 0 to ", padded.dim_size(dimension),
            ". An op of the program cannot take inputs of this dynamic size: give it inputs of "
            "static shape, or larger ones."));
      }
      shape.set_dim(dimension, size);
    }
    if (shape == padded.shape()) return padded;
    Tensor cut(tensorflow::cpu_allocator(), padded.dtype(), shape);
    CopyLeadingBlock(padded.data(), padded.shape(), &cut);
    return cut;
  }

  Program* const program_;
  CoreContext core_;
  Arguments arguments_;
  const RunOptions run_options_;
  Done done_;
  absl::Time begin_;

  ByNumber<ResultNumber, Tensor> results_;
  std::vector<Tensor> scratch_;
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

absl::StatusOr<std::shared_ptr<Program>> Program::Create(
    std::shared_ptr<const CompiledProgram> compiled) {
  TF_ASSIGN_OR_RETURN(Parts parts, CreateParts(*compiled));
  std::shared_ptr<Program> program(new Program(std::move(compiled), std::move(parts)));
  // The groups run in its place.
  if (program->stacked() == nullptr) TF_RETURN_IF_ERROR(program->Prepare());
  return program;
}

absl::StatusOr<Program::Parts> Program::CreateParts(const CompiledProgram& compiled) {
  Parts parts;
  if (!compiled.host_functions.empty()) {
    TF_ASSIGN_OR_RETURN(
        parts.host_functions,
        HostFunctions::Create(compiled.host_functions, compiled.num_slots(),
                              Process::Get().host_threads, Process::Get().transfer_stats));
  }
  if (compiled.shared_update != nullptr) {
    TF_ASSIGN_OR_RETURN(parts.shared_update, Create(compiled.shared_update->program));
  }
  if (compiled.stacked != nullptr) {
    TF_ASSIGN_OR_RETURN(parts.stacked, Create(compiled.stacked->program));
  }
  return parts;
}

absl::Status Program::Prepare() {
  xla::cpu::CpuExecutable& executable = CpuExecutableOf(*compiled_);
  const xla::BufferAssignment& assignment = executable.buffer_assignment();
  result_of_allocation_.resize(assignment.Allocations().size());
  const xla::HloInstruction* root = executable.module().entry_computation()->root_instruction();
  ByNumber<ResultNumber, const CompiledProgram::Output*> computed;
  for (const CompiledProgram::Output& output : compiled_->outputs) {
    if (output.constant != nullptr) {
      result_of_output_.Add(std::nullopt);
    } else {
      result_of_output_.Add(computed.Add(&output));
    }
  }
  // Behind the outputs stand the sizes of dynamic ones.
  const auto num_results = static_cast<int>(root->shape().tuple_shapes().size());
  for (ResultNumber result : NumbersBelow<ResultNumber>(num_results)) {
    TF_ASSIGN_OR_RETURN(const xla::BufferAllocation::Slice slice,
                        assignment.GetUniqueSlice(root, {result.value()}));
    const xla::Shape& shape = root->shape().tuple_shapes(result.value());
    ResultBuffer buffer;
    buffer.dtype = computed.Has(result) ? computed[result]->dtype : tensorflow::DT_INT32;
    buffer.allocation = slice.index();
    buffer.offset = slice.offset();
    for (int64_t size : shape.dimensions()) buffer.shape.AddDim(size);
    results_.Add(std::move(buffer));
    const xla::BufferAllocation& allocation = assignment.GetAllocation(slice.index());
    const bool is_whole = slice.offset() == 0 && slice.size() == allocation.size();
    // A result that has an allocation of its own is written where the caller will find it.
    if (is_whole && !allocation.is_entry_computation_parameter() && !allocation.is_constant()) {
      std::optional<ResultNumber>& owner = result_of_allocation_[slice.index()];
      if (!owner.has_value()) owner = result;
    }
    std::optional<ArgumentNumber> argument;
    if (is_whole && allocation.is_entry_computation_parameter() && !allocation.is_readonly()) {
      const ParameterNumber parameter(static_cast<int>(allocation.parameter_number()));
      argument = compiled_->parameter_arguments[parameter];
    }
    argument_of_result_.Add(argument);
  }
  return absl::OkStatus();
}

void Program::Start(CoreContext core, Arguments arguments, RunOptions options, Done done) {
  if (!compiled_->padded_arguments.empty()) {
    Process::Get().padding->Count(compiled_->padded_arguments, arguments);
  }
  Run::Start(
      std::make_shared<Run>(this, core, std::move(arguments), std::move(options), std::move(done)));
}

void Program::RecordRun(absl::Duration time) {
  const int64_t taken = absl::ToInt64Nanoseconds(time);
  const int64_t before = typical_nanoseconds_.load(std::memory_order_relaxed);
  // Runs at the same time may miss each other's values: it is an estimate.
  typical_nanoseconds_.store(before < 0 ? taken : (3 * before + taken) / 4,
                             std::memory_order_relaxed);
}

void Program::Recycle(std::vector<Tensor> combined_outputs) {
  absl::MutexLock lock(&mutex_);
  free_combined_outputs_.push_back(std::move(combined_outputs));
}

absl::StatusOr<std::shared_ptr<Program>> Program::Alone() {
  absl::MutexLock building(&building_);
  if (std::shared_ptr<Program> built = AloneIfBuilt()) return built;
  TF_ASSIGN_OR_RETURN(std::shared_ptr<Program> built, BuildAlone());
  absl::MutexLock lock(&mutex_);
  alone_ = built;
  return built;
}

absl::StatusOr<std::shared_ptr<Program>> Program::BuildAlone() const {
  TF_ASSIGN_OR_RETURN(std::shared_ptr<const CompiledProgram> compiled,
                      compiled_->stacked->build_alone());
  return Create(std::move(compiled));
}

std::shared_ptr<Program> Program::AloneIfBuilt() {
  absl::MutexLock lock(&mutex_);
  return alone_;
}

absl::StatusOr<Slot> Program::SlotOfCore(Core core) const {
  if (compiled_->cores.empty()) return Slot(0);
  for (Slot slot : compiled_->cores.numbers()) {
    if (compiled_->cores[slot] == core) return slot;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("Program ", compiled_->name, " was compiled for the cores [",
                   absl::StrJoin(compiled_->cores, ", "), "] and was sent to core ", core,
                   ". Compile it with a device assignment that has this core."));
}

}  // namespace tf_tpu_ext
