#include "cc/kernels/compile_and_launch.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cc/base/core_numbers.h"
#include "cc/base/machine.h"
#include "cc/base/process.h"
#include "cc/base/program_options.h"
#include "cc/compiler/lower/lower_module.h"
#include "cc/compiler/lower/rewrite_functions.h"
#include "cc/compiler/overrides/checked_ops.h"
#include "cc/compiler/overrides/tensorflow_kernels.h"
#include "cc/device/virtual_device.h"
#include "cc/kernels/ask_target.h"
#include "cc/kernels/make_program.h"
#include "cc/program/lowering.h"
#include "cc/program/traced_options.h"
#include "cc/program/value_numbers.h"
#include "cc/runtime/join_launch.h"
#include "cc/runtime/launch_table.h"
#include "cc/runtime/program_cache.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/fingerprint.h"
#include "tensorflow/core/platform/statusor.h"
#include "tsl/platform/tensor_float_32_utils.h"

namespace tf_tpu_ext {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::Var;
using tensorflow::XlaArgument;

// What the results of a program mean to the op.
struct CompileAndLaunchOp::Interface {
  std::vector<tensorflow::XlaOutputDescription> outputs;
  std::vector<tensorflow::XlaResourceUpdate> updates;

  bool UpdatesVariables() const {
    return std::any_of(updates.begin(), updates.end(),
                       [](const auto& update) { return update.modified; });
  }
};

struct CompileAndLaunchOp::Call {
  ProgramOptions options;
  // The types and shapes of the arguments, and the values of those that are compiled in.
  std::string shapes;
  std::string key;
  std::vector<XlaArgument> arguments;
  Arguments values;
  std::shared_ptr<ArgumentVariables> variables = std::make_shared<ArgumentVariables>();
  std::shared_ptr<const Interface> interface;
};

namespace {

// Function names are unique only within a function library.
int64_t NextKernelId() {
  static std::atomic<int64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

absl::Status DescribeVariable(OpKernelContext* context, int input, XlaArgument* argument,
                              Tensor* value, tensorflow::core::RefCountPtr<Var>* variable) {
  tensorflow::ResourceHandle handle;
  TF_RETURN_IF_ERROR(tensorflow::HandleFromInput(context, input, &handle));
  const absl::Status found = LookupResource(context, handle, variable);
  if (!found.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("Variable '", handle.name(), "' does not exist on ", context->device()->name(),
                     ". Create it there. (", found.message(), ")"));
  }
  argument->kind = XlaArgument::kResource;
  argument->resource_kind = tensorflow::XlaResource::kVariable;
  argument->name = handle.name();
  tensorflow::tf_shared_lock lock(*(*variable)->mu());
  *value = *(*variable)->tensor();
  argument->initialized = (*variable)->is_initialized;
  argument->type = value->dtype();
  argument->shape = value->shape();
  return absl::OkStatus();
}

// A text that identifies the value of a constant: the value itself, if it is short.
std::string ValueText(const Tensor& value) {
  constexpr int kMostElements = 8;
  if (value.NumElements() <= kMostElements) return value.SummarizeValue(kMostElements);
  const auto print = tensorflow::Fingerprint128(value.tensor_data());
  return absl::StrCat(value.SummarizeValue(kMostElements), " (#", absl::Hex(print.low64), ")");
}

}  // namespace

CompileAndLaunchOp::CompileAndLaunchOp(tensorflow::OpKernelConstruction* construction,
                                       std::string computation, const std::vector<int>& constants,
                                       std::string compile_options)
    : AsyncOpKernel(construction),
      computation_(std::move(computation)),
      constants_(constants.begin(), constants.end()),
      compile_options_(std::move(compile_options)),
      key_prefix_(absl::StrCat("jit:", NextKernelId(), ":", computation_)) {}

CompileAndLaunchOp::~CompileAndLaunchOp() {
  // Only this kernel knows their keys.
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, known] : known_) Process::Get().programs->Drop(key);
}

void CompileAndLaunchOp::ComputeAsync(OpKernelContext* context, DoneCallback done) {
  auto call = std::make_shared<Call>();
  call->options = GetMachineOptions().programs;
  OP_REQUIRES_OK_ASYNC(context, ApplyTracedOptions(compile_options_, &call->options), done);
  OP_REQUIRES_OK_ASYNC(context, DescribeArguments(context, call.get()), done);
  call->key = absl::StrCat(key_prefix_, "|", ProgramOptionsText(call->options), "|",
                           tsl::tensor_float_32_execution_enabled(), call->shapes);
  absl::StatusOr<std::shared_ptr<Program>> program = Process::Get().programs->GetOrCompile(
      call->key,
      [&](int64_t id, CompilationRecord* record) { return Compile(context, id, *call, record); });
  OP_REQUIRES_OK_ASYNC(context, program.status(), done);
  absl::StatusOr<std::shared_ptr<const Interface>> interface = InterfaceOf(call->key);
  OP_REQUIRES_OK_ASYNC(context, interface.status(), done);
  call->interface = *std::move(interface);
  auto write = [context, call](std::vector<Tensor> outputs) {
    return WriteResults(context, *call, std::move(outputs));
  };
  LaunchTable* const launches = Process::Get().launches;
  const absl::Status status =
      JoinLaunch(context, launches, Core(context->device()->parsed_name().id),
                 launches->NextLaunchId(), {*program, nullptr},
                 {std::move(call->values), call->variables, call->interface->UpdatesVariables()},
                 std::move(write), done);
  OP_REQUIRES_OK_ASYNC(context, status, done);
}

absl::Status CompileAndLaunchOp::DescribeArguments(OpKernelContext* context, Call* call) const {
  const int size = context->num_inputs();
  call->arguments.resize(size);
  call->values.resize(size);
  call->variables->resize(size);
  for (ArgumentNumber number : call->values.numbers()) {
    const int i = number.value();
    XlaArgument& argument = call->arguments[i];
    Tensor& value = call->values[number];
    if (context->input_dtype(i) == tensorflow::DT_RESOURCE) {
      TF_RETURN_IF_ERROR(
          DescribeVariable(context, i, &argument, &value, &(*call->variables)[number]));
    } else {
      value = context->input(i);
      argument.type = context->input_dtype(i);
      argument.shape = context->input(i).shape();
      argument.kind = XlaArgument::kParameter;
    }
    absl::StrAppend(&call->shapes, "|", tensorflow::DataTypeString(argument.type),
                    absl::get<tensorflow::TensorShape>(argument.shape).DebugString());
    if (argument.kind == XlaArgument::kResource && !argument.initialized) {
      call->shapes += "|uninitialized";
    }
    if (argument.kind == XlaArgument::kParameter && constants_.count(i) > 0) {
      argument.kind = XlaArgument::kConstant;
      argument.constant_value = value;
      const auto print = tensorflow::Fingerprint128(value.tensor_data());
      absl::StrAppend(&call->shapes, "=", print.low64, ":", print.high64);
    }
  }
  return absl::OkStatus();
}

std::vector<RecordedArgument> CompileAndLaunchOp::RecordArguments(OpKernelContext* context,
                                                                  const Call& call) const {
  const auto record =
      context->function_library()->GetFunctionLibraryDefinition()->FindRecord(computation_);
  std::vector<RecordedArgument> recorded;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const XlaArgument& argument = call.arguments[i];
    const auto& shape = absl::get<tensorflow::TensorShape>(argument.shape);
    RecordedArgument& each = recorded.emplace_back();
    each.name = argument.name;
    if (each.name.empty() && record != nullptr) {
      const tensorflow::OpDef& signature = record->fdef().signature();
      if (static_cast<int>(i) < signature.input_arg_size()) {
        each.name = signature.input_arg(static_cast<int>(i)).name();
      }
    }
    each.type = tensorflow::DataTypeString(argument.type);
    each.shape = shape.DebugString();
    each.bytes = shape.num_elements() * tensorflow::DataTypeSize(argument.type);
    each.is_variable = argument.kind == XlaArgument::kResource;
    if (argument.kind == XlaArgument::kConstant) each.value = ValueText(argument.constant_value);
  }
  return recorded;
}

absl::StatusOr<std::shared_ptr<Program>> CompileAndLaunchOp::Compile(OpKernelContext* context,
                                                                     int64_t id, const Call& call,
                                                                     CompilationRecord* record) {
  record->name = computation_;
  record->argument_shapes = call.shapes;
  record->arguments = RecordArguments(context, call);
  record->options = absl::StrCat(ProgramOptionsText(call.options),
                                 ";tensor_float_32=", tsl::tensor_float_32_execution_enabled());
  const absl::Time start = absl::Now();
  record->started = start;
  LoweredModule lowered;
  const absl::Status status = LowerCall(context, call, &lowered);
  record->lowering = absl::Now() - start;
  TF_RETURN_IF_ERROR(status);
  const tensorflow::tpu::TPUCompileMetadataProto metadata;
  AskTarget(*record, metadata,
            [&](LoweredModule* for_target) { return LowerCall(context, call, for_target); });
  TF_ASSIGN_OR_RETURN(std::shared_ptr<Program> program, MakeProgram(lowered, metadata, id, record));
  auto interface = std::make_shared<Interface>();
  interface->outputs = lowered.result.outputs;
  interface->updates = lowered.result.resource_updates;
  absl::MutexLock lock(&mutex_);
  // The interfaces of programs that the cache has dropped.
  absl::erase_if(known_, [](const auto& known) { return known.second.program.expired(); });
  known_[call.key] = {program, std::move(interface)};
  return program;
}

absl::Status CompileAndLaunchOp::LowerCall(OpKernelContext* context, const Call& call,
                                           LoweredModule* lowered) {
  lowered->options = call.options;
  tensorflow::XlaCompiler::Options options;
  tensorflow::FunctionLibraryDefinition library(
      *context->function_library()->GetFunctionLibraryDefinition());
  std::function<absl::Status(tensorflow::ResourceMgr*)> tell =
      [for_target = lowered->for_target](tensorflow::ResourceMgr* manager) {
        return SetLowering({/*replicas=*/1, for_target}, manager);
      };
  options.populate_resource_manager = &tell;
  lowered->lines = OpLines(computation_, library);
  if (lowered->for_target) {
    options.device_type = tensorflow::DeviceType(kTargetCompilationDevice);
  } else {
    options.device_type = tensorflow::DeviceType(kCompilationDevice);
    TF_RETURN_IF_ERROR(ChooseTpuPlatforms(&library));
    TF_RETURN_IF_ERROR(UseCheckedOps(&library));
    if (call.options.tensorflow_kernels) TF_RETURN_IF_ERROR(UseTensorFlowKernels(&library));
  }
  options.flib_def = &library;
  options.graph_def_version = context->function_library()->graph_def_version();
  options.allow_cpu_custom_calls = true;
  options.detailed_logging = false;
  tensorflow::XlaCompiler compiler(options);
  tensorflow::XlaCompiler::CompileOptions compile_options;
  compile_options.is_entry_computation = true;
  // New values of variables reuse the memory of the old ones.
  compile_options.alias_resource_update = lowered->for_target;
  return Lower(context, &compiler, compile_options, call.arguments, &lowered->result);
}

absl::StatusOr<std::shared_ptr<const CompileAndLaunchOp::Interface>>
CompileAndLaunchOp::InterfaceOf(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  const auto found = known_.find(key);
  if (found == known_.end()) {
    return absl::InternalError(absl::StrCat("Program ", key, " has no interface."));
  }
  return found->second.interface;
}

absl::Status CompileAndLaunchOp::WriteResults(OpKernelContext* context, const Call& call,
                                              std::vector<Tensor> outputs) {
  const Interface& interface = *call.interface;
  for (size_t i = 0; i < interface.outputs.size(); ++i) {
    const bool is_handle = interface.outputs[i].type == tensorflow::DT_RESOURCE;
    context->set_output(i,
                        is_handle ? context->input(interface.outputs[i].input_index) : outputs[i]);
  }
  for (size_t i = 0; i < interface.updates.size(); ++i) {
    if (!interface.updates[i].modified) continue;
    Var* variable = (*call.variables)[ArgumentNumber(interface.updates[i].input_index)].get();
    tensorflow::mutex_lock lock(*variable->mu());
    *variable->tensor() = std::move(outputs[interface.outputs.size() + i]);
    variable->is_initialized = true;
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
