#define EIGEN_USE_THREADS

#include "cc/runtime/program_run.h"

#include <cstdint>
#include <cstring>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cc/abi/xla/cpu_executable.h"
#include "cc/base/kernel_threads.h"
#include "cc/base/memory.h"
#include "cc/base/tensor_copy.h"
#include "cc/check/value_summary.h"
#include "cc/program/compiled_program.h"
#include "cc/runtime/result_layout.h"
#include "cc/runtime/ynn_threads.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"
#include "tsl/profiler/lib/traceme.h"
#include "tsl/profiler/lib/traceme_encode.h"
#include "unsupported/Eigen/CXX11/Tensor"
#include "xla/backends/cpu/runtime/thunk_executor.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using stream_executor::DeviceAddressBase;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// XLA:CPU reads buffers with aligned vector loads.
constexpr uintptr_t kAlignment = 64;

bool IsAligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % kAlignment == 0; }

// Otherwise, bytes of another type or shape would be read as numbers of this one. They may come
// from a damaged graph, or from a variable whose shape has changed since the program was compiled.
bool IsOfShape(const Tensor& tensor, const xla::Shape& expected) {
  xla::PrimitiveType type;
  if (!tensorflow::DataTypeToPrimitiveType(tensor.dtype(), &type).ok() ||
      type != expected.element_type() ||
      tensor.dims() != static_cast<int>(expected.dimensions().size())) {
    return false;
  }
  for (int dimension = 0; dimension < tensor.dims(); ++dimension) {
    if (tensor.dim_size(dimension) != expected.dimensions(dimension)) return false;
  }
  return true;
}

Tensor AllocateBytes(int64_t bytes) {
  return Tensor(tensorflow::cpu_allocator(), tensorflow::DT_UINT8, TensorShape({bytes}));
}

}  // namespace

Program::Run::Run(Program* program, CoreContext core, Arguments arguments, RunOptions options,
                  Done done)
    : program_(program),
      executable_(static_cast<xla::cpu::CpuExecutable&>(*program->compiled().executable)),
      core_(core),
      arguments_(std::move(arguments)),
      run_options_(std::move(options)),
      done_(std::move(done)),
      task_runner_(program->services_.compute_pool) {
  core_.core_in_pod = program->compiled().pod.NumberInPod(core_.core);
}

void Program::Run::Start(std::shared_ptr<Run> run) {
  tsl::profiler::TraceMe trace([&] {
    return tsl::profiler::TraceMeEncode(absl::StrCat("TPU core ", run->core_.core),
                                        {{"program", run->program_->compiled().name},
                                         {"replica", run->core_.replica.value()},
                                         {"launch", run->core_.launch_id.value()}});
  });
  run->begin_ = absl::Now();
  run->profile_begin_ = NowIfRecording(run->program_->services_.recorder);
  const RunScope scope(run->core_.run_id, run->core_.core_in_pod);
  if (absl::Status status = run->Prepare(); !status.ok()) {
    run->done_(std::move(status), {});
    return;
  }
  auto event = run->executable_.thunks().Execute(run->params_);
  event.AndThen([run = std::move(run), event = event.AsPtr()] {
    run->Finish(event.IsError() ? event.GetError() : absl::OkStatus());
  });
}

std::string Program::Run::Name() const {
  return absl::StrCat("Program ", program_->compiled().name);
}

absl::Status Program::Run::Prepare() {
  TF_RETURN_IF_ERROR(BindBuffers());
  const ProgramServices& services = program_->services_;
  if (program_->compiled().device_assignment != nullptr) {
    device_assignment_ = *program_->compiled().device_assignment;
  } else {
    device_assignment_.emplace(1, 1);
    (*device_assignment_)(0, 0) = core_.core.value();
  }
  cpu_options_.set_collectives(services.collectives);
  options_.set_run_id(xla::RunId(core_.run_id.value()));
  options_.set_device_ordinal(core_.core_in_pod.value());
  options_.set_device_assignment(&*device_assignment_);
  const Eigen::ThreadPoolDevice* threads = run_options_.on_one_thread
                                               ? services.kernel_threads->OfCaller().device
                                               : services.compute_pool->EigenDevice();
  options_.set_intra_op_thread_pool(threads);
  options_.set_cpu_executable_run_options(&cpu_options_);
  TF_RETURN_IF_ERROR(ffi_context_.Insert(&core_));
  options_.set_ffi_execution_context(&ffi_context_);

  // Created from the options, which must be complete.
  TF_ASSIGN_OR_RETURN(auto collective_params,
                      xla::cpu::Thunk::CollectiveExecuteParams::Create(&options_));
  // Trivial to copy in some of TensorFlow's minors only. NOLINTBEGIN(performance-move-const-arg)
  collective_params_.emplace(std::move(collective_params));
  TF_ASSIGN_OR_RETURN(auto custom_call_params,
                      xla::cpu::Thunk::CustomCallExecuteParams::Create(&options_));
  custom_call_params_.emplace(std::move(custom_call_params));
  // NOLINTEND(performance-move-const-arg)

  params_.function_library = executable_.function_library();
  params_.buffer_allocations = &*buffers_;
  params_.intra_op_threadpool = threads;
  if (!run_options_.on_one_thread) {
    params_.task_runner = &task_runner_;
    if (WantsYnnParams(executable_)) {
      TF_ASSIGN_OR_RETURN(YnnParams * params, services.ynn_threads->Params());
      SetYnnParams(params, &params_);
    }
  }
  params_.collective_params = &*collective_params_;
  params_.custom_call_params = &*custom_call_params_;
  SetRun(core_.run_id.value(), core_.core_in_pod.value(), &params_);
  return absl::OkStatus();
}

absl::Status Program::Run::BindBuffers() {
  if (FillsMemory()) TF_RETURN_IF_ERROR(FillPadding());
  const auto& allocations = executable_.buffer_assignment().Allocations();
  absl::InlinedVector<DeviceAddressBase, 8> buffers(allocations.size());
  results_.resize(program_->layout_.results.size());
  TakeCombinedOutputs();
  scratch_ = program_->scratch_.Take();
  size_t next_scratch = 0;
  for (const xla::BufferAllocation& allocation : allocations) {
    const int64_t index = allocation.index();
    if (allocation.is_thread_local()) continue;
    if (allocation.is_constant()) {
      // The list has an element for each allocation, which is empty unless it is a constant.
      if (index < static_cast<int64_t>(executable_.constants().size())) {
        buffers[index] = AddressOf(executable_.constants()[index]);
      }
    } else if (allocation.is_entry_computation_parameter()) {
      TF_ASSIGN_OR_RETURN(buffers[index], BindParameter(allocation));
    } else if (const auto result = program_->layout_.result_of_allocation[index];
               result.has_value()) {
      TF_ASSIGN_OR_RETURN(buffers[index], BindResult(allocation, *result));
    } else {
      TF_ASSIGN_OR_RETURN(buffers[index], BindScratch(allocation, next_scratch++));
    }
  }
  buffers_.emplace(std::move(buffers));
  return AllocateCopies();
}

absl::StatusOr<DeviceAddressBase> Program::Run::BindParameter(
    const xla::BufferAllocation& allocation) {
  const ParameterNumber parameter(static_cast<int>(allocation.parameter_number()));
  const ArgumentNumber argument = program_->compiled().parameter_arguments[parameter];
  if (!arguments_.Has(argument)) {
    return absl::InvalidArgumentError(absl::StrCat("Program ", program_->compiled().name,
                                                   " takes argument ", argument, ", but got only ",
                                                   arguments_.size(), " arguments."));
  }
  Tensor& tensor = arguments_[argument];
  const xla::Shape& expected =
      executable_.module().entry_computation()->parameter_instruction(parameter.value())->shape();
  const int64_t bytes = tensor.TotalBytes();
  if (bytes != allocation.size() || !IsOfShape(tensor, expected)) {
    return absl::InvalidArgumentError(
        absl::StrCat("Argument ", argument, " of program ", program_->compiled().name, " is ",
                     tensorflow::DataTypeString(tensor.dtype()), tensor.shape().DebugString(), " (",
                     bytes, " bytes); the program was compiled for ",
                     xla::ShapeUtil::HumanString(expected), " (", allocation.size(), " bytes)."));
  }
  const bool needs_copy = program_->layout_.overwritten_parameters.count(parameter) > 0 &&
                          !absl::c_linear_search(run_options_.overwritable, argument);
  if (needs_copy || !IsAligned(tensor.data())) {
    Tensor copy(tensorflow::cpu_allocator(), tensor.dtype(), tensor.shape());
    TF_RETURN_IF_ERROR(CheckMemory(copy, Name(), "an argument on each core"));
    if (bytes > 0) std::memcpy(copy.data(), tensor.data(), bytes);
    tensor = std::move(copy);
  }
  return DeviceAddressBase(tensor.data(), bytes);
}

absl::StatusOr<DeviceAddressBase> Program::Run::BindResult(const xla::BufferAllocation& allocation,
                                                           ResultNumber number) {
  const ResultLayout::Result& expected = program_->layout_.results[number];
  Tensor& result = results_[number];
  // If they match, this is memory of an earlier run, see TakeCombinedOutputs.
  if (result.dtype() != expected.dtype || result.shape() != expected.shape) {
    result = Tensor(tensorflow::cpu_allocator(), expected.dtype, expected.shape);
  }
  TF_RETURN_IF_ERROR(CheckMemory(result, Name(), "a result on each core"));
  if (FillsMemory()) FillAsUnwritten(result.dtype(), result.data(), result.TotalBytes());
  return DeviceAddressBase(result.data(), allocation.size());
}

absl::StatusOr<DeviceAddressBase> Program::Run::BindScratch(const xla::BufferAllocation& allocation,
                                                            size_t place) {
  if (place == scratch_.size()) scratch_.push_back(AllocateBytes(allocation.size()));
  if (absl::Status status =
          CheckMemory(scratch_[place], Name(), "intermediate values on each core");
      !status.ok()) {
    // Everything that is kept for the next run must be complete.
    scratch_.clear();
    return status;
  }
  if (FillsMemory()) {
    FillAsUnwritten(scratch_[place].dtype(), scratch_[place].data(), scratch_[place].TotalBytes());
  }
  return DeviceAddressBase(scratch_[place].data(), allocation.size());
}

// Copies the arguments, because others may use them.
absl::Status Program::Run::FillPadding() {
  for (const PaddedArgument& padded : program_->compiled().padded_arguments) {
    if (!arguments_.Has(padded.argument)) continue;
    Tensor& argument = arguments_[padded.argument];
    const TensorShape true_shape = TrueShape(padded, arguments_);
    if (true_shape == argument.shape()) continue;
    Tensor filled(tensorflow::cpu_allocator(), argument.dtype(), argument.shape());
    TF_RETURN_IF_ERROR(CheckMemory(filled, Name(), "an argument on each core"));
    FillAsUnwritten(filled.dtype(), filled.data(), filled.TotalBytes());
    CopyLeadingBlock(argument, true_shape, &filled);
    argument = std::move(filled);
  }
  return absl::OkStatus();
}

// Allocates memory for results that Finish copies, see TakeResult. Called before the program runs,
// because it may overwrite variables, and after that it must not fail.
absl::Status Program::Run::AllocateCopies() {
  const ResultLayout& layout = program_->layout_;
  for (ResultNumber number : layout.results.numbers()) {
    const ResultLayout::Result& result = layout.results[number];
    if (layout.result_of_allocation[result.allocation] == number || result.argument.has_value()) {
      continue;
    }
    results_[number] = Tensor(tensorflow::cpu_allocator(), result.dtype, result.shape);
    TF_RETURN_IF_ERROR(CheckMemory(results_[number], Name(), "a result on each core"));
  }
  return absl::OkStatus();
}

// Results for the shared update use the memory of earlier runs.
void Program::Run::TakeCombinedOutputs() {
  const int count = program_->compiled().num_combined_outputs;
  if (count == 0) return;
  std::vector<Tensor> kept = program_->combined_outputs_.Take();
  if (!kept.empty()) absl::c_move(kept, results_.end() - count);
}

void Program::Run::Finish(absl::Status status) {
  RunScope::EndInnermost();
  program_->RecordRun(absl::Now() - begin_);
  Outputs outputs;
  if (status.ok()) status = CollectOutputs(&outputs);
  if (profile_begin_.has_value()) Record(*profile_begin_);
  if (!scratch_.empty()) program_->scratch_.Keep(std::move(scratch_));
  // Before `done`, which may start the next step. That overwrites a variable only if nobody else
  // refers to its value.
  arguments_.clear();
  done_(std::move(status), std::move(outputs));
}

void Program::Run::Record(int64_t begin) {
  const ProfileTime end = program_->services_.recorder->Now();
  if (!end.has_value()) return;  // the profile ended before the run
  RecordedRun run;
  run.program = program_->compiled_;
  run.launch_id = core_.launch_id;
  run.run_id = core_.run_id;
  run.cores = run_options_.served_cores;
  if (run.cores.empty()) run.cores.push_back(core_.core);
  run.core_in_pod = core_.core_in_pod;
  run.begin = run_options_.combines_from.value_or(begin);
  run.combined_until = run_options_.combined_until;
  run.combined_bytes = run_options_.combined_bytes;
  run.end = *end;
  program_->services_.recorder->Add(std::move(run));
}

absl::Status Program::Run::CollectOutputs(Outputs* outputs) {
  const CompiledProgram& compiled = program_->compiled();
  outputs->resize(compiled.outputs.size());
  for (OutputNumber output : outputs->numbers()) {
    const std::optional<ResultNumber> result = program_->layout_.result_of_output[output];
    if (result.has_value()) {
      TF_ASSIGN_OR_RETURN((*outputs)[output], CutToSize(TakeResult(*result), output));
    } else {
      (*outputs)[output] = *compiled.outputs[output].constant;
    }
  }
  return absl::OkStatus();
}

Tensor Program::Run::TakeResult(ResultNumber number) const {
  const ResultLayout& layout = program_->layout_;
  const ResultLayout::Result& result = layout.results[number];
  if (layout.result_of_allocation[result.allocation] == number) return results_[number];
  // The caller's memory, or that of our own copy.
  if (result.argument.has_value()) return arguments_[*result.argument];
  // The result shares its allocation with something else.
  const auto* data =
      static_cast<const char*>(buffers_->GetDeviceAddressUnchecked(result.allocation).opaque());
  const Tensor& copy = results_[number];
  if (copy.TotalBytes() > 0) std::memcpy(copy.data(), data + result.offset, copy.TotalBytes());
  return copy;
}

absl::StatusOr<Tensor> Program::Run::CutToSize(Tensor padded, OutputNumber output) const {
  TensorShape shape = padded.shape();
  for (const auto& [dimension, result] : program_->compiled().outputs[output].dynamic_sizes) {
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
  TF_RETURN_IF_ERROR(CheckMemory(cut, Name(), "a result of dynamic size on each core"));
  CopyLeadingBlock(padded.data(), padded.shape(), &cut);
  return cut;
}

}  // namespace tf_tpu_ext
