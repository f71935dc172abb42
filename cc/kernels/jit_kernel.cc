#include "cc/kernels/jit_kernel.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cc/base/machine.h"
#include "cc/base/process.h"
#include "cc/base/program_options.h"
#include "cc/compiler/lower/lower_module.h"
#include "cc/compiler/overrides/tensorflow_kernels.h"
#include "cc/device/virtual_device.h"
#include "cc/kernels/jit_with_host.h"
#include "cc/kernels/make_program.h"
#include "cc/ops/reachable_nodes.h"
#include "cc/program/traced_options.h"
#include "cc/runtime/join_launch.h"
#include "cc/runtime/launch_table.h"
#include "cc/runtime/program_cache.h"
#include "llvm/ADT/StringRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "tensorflow/compiler/jit/compilability_check_util.h"
#include "tensorflow/compiler/jit/xla_kernel_creator.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/common_runtime/function.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/fingerprint.h"
#include "tensorflow/core/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::FunctionLibraryRuntime;
using tensorflow::NameAttrList;
using tensorflow::NodeProperties;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::Var;
using tensorflow::XlaArgument;

// Runs one function as a program of one core.
class JitLaunchOp : public AsyncOpKernel {
 public:
  // `compile_options` are those that the function was traced with.
  JitLaunchOp(OpKernelConstruction* construction, NameAttrList function,
              const std::vector<int>& constants, std::string compile_options)
      : AsyncOpKernel(construction),
        function_(std::move(function)),
        constants_(constants.begin(), constants.end()),
        compile_options_(std::move(compile_options)),
        key_prefix_(absl::StrCat("jit:", NextKernelId(), ":", function_.name())) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    auto call = std::make_shared<Call>();
    call->options = GetMachineOptions().programs;
    OP_REQUIRES_OK_ASYNC(context, ApplyTracedOptions(compile_options_, &call->options), done);
    OP_REQUIRES_OK_ASYNC(context, DescribeArguments(context, call.get()), done);
    call->key = absl::StrCat(key_prefix_, "|", ProgramOptionsText(call->options), call->shapes);
    absl::StatusOr<std::shared_ptr<Program>> program = Process::Get().programs->GetOrCompile(
        call->key,
        [&](int64_t id, CompilationRecord* record) { return Compile(context, id, *call, record); });
    OP_REQUIRES_OK_ASYNC(context, program.status(), done);
    OP_REQUIRES_OK_ASYNC(context, Interface(call->key, &call->interface), done);
    auto write = [context, call](std::vector<Tensor> outputs) {
      return WriteResults(context, *call, std::move(outputs));
    };
    const absl::Status status =
        JoinLaunch(context, Process::Get().launches, context->device()->parsed_name().id,
                   Process::Get().launches->NextLaunchId(), *program,
                   {std::move(call->values), nullptr}, std::move(write), done);
    OP_REQUIRES_OK_ASYNC(context, status, done);
  }

 private:
  // What the results of a program mean to the function's caller.
  struct ProgramInterface {
    std::vector<tensorflow::XlaOutputDescription> outputs;
    std::vector<tensorflow::XlaResourceUpdate> updates;
  };

  struct Call {
    ProgramOptions options;
    // Types and shapes of the arguments, and the values of those that are compiled in.
    std::string shapes;
    std::string key;
    std::vector<XlaArgument> arguments;
    std::vector<Tensor> values;
    std::vector<tensorflow::core::RefCountPtr<Var>> variables;
    std::shared_ptr<const ProgramInterface> interface;
  };

  // Function names are unique only within a function library.
  static int64_t NextKernelId() {
    static std::atomic<int64_t> next{1};
    return next.fetch_add(1, std::memory_order_relaxed);
  }

  absl::Status DescribeArguments(OpKernelContext* context, Call* call) const {
    const int size = context->num_inputs();
    call->arguments.resize(size);
    call->values.resize(size);
    call->variables.resize(size);
    for (int i = 0; i < size; ++i) {
      XlaArgument& argument = call->arguments[i];
      if (context->input_dtype(i) == tensorflow::DT_RESOURCE) {
        TF_RETURN_IF_ERROR(DescribeVariable(context, i, call));
      } else {
        call->values[i] = context->input(i);
        argument.type = context->input_dtype(i);
        argument.shape = context->input(i).shape();
        argument.kind = XlaArgument::kParameter;
      }
      absl::StrAppend(&call->shapes, "|", tensorflow::DataTypeString(argument.type),
                      absl::get<tensorflow::TensorShape>(argument.shape).DebugString());
      if (argument.kind == XlaArgument::kParameter && constants_.count(i) > 0) {
        argument.kind = XlaArgument::kConstant;
        argument.constant_value = call->values[i];
        const auto value = tensorflow::Fingerprint128(call->values[i].tensor_data());
        absl::StrAppend(&call->shapes, "=", value.low64, ":", value.high64);
      }
    }
    return absl::OkStatus();
  }

  static absl::Status DescribeVariable(OpKernelContext* context, int i, Call* call) {
    const tensorflow::ResourceHandle& handle = tensorflow::HandleFromInput(context, i);
    absl::Status status = LookupResource(context, handle, &call->variables[i]);
    XlaArgument& argument = call->arguments[i];
    argument.kind = XlaArgument::kResource;
    argument.resource_kind = tensorflow::XlaResource::kVariable;
    argument.name = handle.name();
    if (!status.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("Variable '", handle.name(), "' does not exist on ",
                       context->device()->name(), ". Create it there. (", status.message(), ")"));
    }
    tensorflow::tf_shared_lock lock(*call->variables[i]->mu());
    const Tensor& value = *call->variables[i]->tensor();
    argument.initialized = call->variables[i]->is_initialized;
    argument.type = value.dtype();
    argument.shape = value.shape();
    if (!argument.initialized) call->shapes += "|uninitialized";
    call->values[i] = value;
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<Program>> Compile(OpKernelContext* context, int64_t id,
                                                   const Call& call, CompilationRecord* record) {
    record->name = function_.name();
    record->argument_shapes = call.shapes;
    const absl::Time start = absl::Now();
    tensorflow::XlaCompiler::Options options;
    options.device_type = tensorflow::DeviceType(kCompilationDevice);
    tensorflow::FunctionLibraryDefinition library(
        *context->function_library()->GetFunctionLibraryDefinition());
    if (call.options.tensorflow_kernels) TF_RETURN_IF_ERROR(UseTensorFlowKernels(&library));
    options.flib_def = &library;
    options.graph_def_version = context->function_library()->graph_def_version();
    options.allow_cpu_custom_calls = true;
    options.detailed_logging = false;
    tensorflow::XlaCompiler compiler(options);
    tensorflow::XlaCompiler::CompileOptions compile_options;
    compile_options.is_entry_computation = true;
    LoweredModule lowered;
    lowered.options = call.options;
    const absl::Status status =
        compiler.CompileFunction(compile_options, function_, call.arguments, &lowered.result);
    record->lowering = absl::Now() - start;
    TF_RETURN_IF_ERROR(status);
    TF_ASSIGN_OR_RETURN(
        std::shared_ptr<Program> program,
        MakeProgram(lowered, tensorflow::tpu::TPUCompileMetadataProto(), id, record));
    auto interface = std::make_shared<ProgramInterface>();
    interface->outputs = lowered.result.outputs;
    interface->updates = lowered.result.resource_updates;
    absl::MutexLock lock(&mutex_);
    interfaces_[call.key] = std::move(interface);
    return program;
  }

  absl::Status Interface(const std::string& key, std::shared_ptr<const ProgramInterface>* found) {
    absl::MutexLock lock(&mutex_);
    auto it = interfaces_.find(key);
    if (it == interfaces_.end()) {
      return absl::InternalError(absl::StrCat("Program ", key, " has no interface."));
    }
    *found = it->second;
    return absl::OkStatus();
  }

  static absl::Status WriteResults(OpKernelContext* context, const Call& call,
                                   std::vector<Tensor> outputs) {
    const ProgramInterface& interface = *call.interface;
    for (size_t i = 0; i < interface.outputs.size(); ++i) {
      const bool is_handle = interface.outputs[i].type == tensorflow::DT_RESOURCE;
      context->set_output(
          i, is_handle ? context->input(interface.outputs[i].input_index) : outputs[i]);
    }
    for (size_t i = 0; i < interface.updates.size(); ++i) {
      if (!interface.updates[i].modified) continue;
      Var* variable = call.variables[interface.updates[i].input_index].get();
      tensorflow::mutex_lock lock(*variable->mu());
      *variable->tensor() = std::move(outputs[interface.outputs.size() + i]);
      variable->is_initialized = true;
    }
    return absl::OkStatus();
  }

  const NameAttrList function_;
  const std::set<int> constants_;
  const std::string compile_options_;
  const std::string key_prefix_;
  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<const ProgramInterface>> interfaces_
      ABSL_GUARDED_BY(mutex_);
};

class JitKernelCreator : public tensorflow::XlaKernelCreator {
 public:
  absl::Status CreateKernel(FunctionLibraryRuntime* library,
                            const std::shared_ptr<const NodeProperties>& properties,
                            std::unique_ptr<OpKernel>* kernel) const override {
    tensorflow::Device* device = library->device();
    NameAttrList function;
    absl::Status status = NameAndAttrsFromFunctionCall(properties->node_def, &function);
    const bool on_core = device->device_type() == kTpuDeviceType;
    const bool with_host =
        !on_core && status.ok() &&
        HoldsOutsideCompilation(function.name(), *library->GetFunctionLibraryDefinition());
    if (!on_core && !with_host) return XlaKernelCreator::CreateKernel(library, properties, kernel);
    TF_RETURN_IF_ERROR(status);
    tensorflow::XlaOpRegistry::RegisterCompilationKernels();
    const tensorflow::FunctionBody* body = nullptr;
    std::vector<int> constants, resources;
    TF_RETURN_IF_ERROR(
        GetBodyAndConstantsAndResources(library, function, &body, &constants, &resources));
    const tensorflow::MemoryTypeVector inputs = GetInputMemoryTypes(body, constants, resources);
    const tensorflow::MemoryTypeVector outputs = GetOutputMemoryTypes(body);
    auto function_properties = std::make_shared<NodeProperties>(
        &body->record->fdef().signature(), properties->node_def, body->arg_types, body->ret_types);
    OpKernelConstruction construction(tensorflow::DeviceType(device->device_type()), device,
                                      device->GetAllocator(tensorflow::AllocatorAttributes()),
                                      library, device->resource_manager(), function_properties,
                                      inputs, outputs, library->graph_def_version(), &status);
    if (with_host) {
      *kernel = MakeJitWithHostKernel(&construction, function);
    } else {
      *kernel = std::make_unique<JitLaunchOp>(&construction, std::move(function), constants,
                                              CompileOptionsOf(body->record->fdef()));
    }
    return status;
  }
};

}  // namespace

void RegisterJitKernels() {
  // TensorFlow keeps the creator for the life of the process.
  static auto* const creator = new JitKernelCreator;
  tensorflow::RegisterDefaultCustomKernelCreator(creator);
}

}  // namespace tf_tpu_ext
