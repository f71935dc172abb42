#include "cc/kernels/core_function.h"

#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/base/machine.h"
#include "cc/kernels/core_placement.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/op_requires.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"

namespace tf_tpu_ext {

using tensorflow::FunctionLibraryDefinition;
using tensorflow::FunctionLibraryRuntime;
using tensorflow::OpKernelContext;
using tensorflow::ResourceHandle;
using tensorflow::Tensor;

CoreFunction::CoreFunction(const tensorflow::OpKernel& kernel,
                           const tensorflow::NameAttrList& function, std::string name,
                           Prepare prepare)
    : kernel_name_(kernel.name()),
      output_types_(kernel.output_types()),
      function_(function),
      name_(std::move(name)),
      prepare_(std::move(prepare)) {}

CoreFunction::~CoreFunction() {
  for (const auto& [key, instance] : instances_) {
    key.library->ReleaseHandle(instance.handle).IgnoreError();
  }
}

bool CoreFunction::Key::operator<(const Key& other) const {
  return std::tie(library, ordinal, input_devices, shapes) <
         std::tie(other.library, other.ordinal, other.input_devices, other.shapes);
}

absl::StatusOr<FunctionLibraryRuntime::Handle> CoreFunction::Find(
    FunctionLibraryRuntime* library, const std::vector<Tensor>& arguments, int ordinal) {
  Key key{library, ordinal, {}, ""};
  for (const Tensor& argument : arguments) {
    if (argument.dtype() == tensorflow::DT_RESOURCE && argument.NumElements() != 1) {
      return absl::InvalidArgumentError(absl::StrCat(kernel_name_, " got ", argument.NumElements(),
                                                     " resource handles as one argument of ",
                                                     function_.name(), "; expected one."));
    }
    key.input_devices.push_back(argument.dtype() == tensorflow::DT_RESOURCE
                                    ? argument.flat<ResourceHandle>()(0).device()
                                    : library->device()->name());
    if (prepare_ != nullptr) absl::StrAppend(&key.shapes, argument.shape().DebugString());
  }
  // Held while an instance is made, so that of concurrent first calls one makes it and the others
  // wait.
  absl::MutexLock lock(&mutex_);
  const auto found = instances_.find(key);
  if (found != instances_.end()) return found->second.handle;
  absl::StatusOr<Instance> instance = Instantiate(key, arguments);
  if (!instance.ok()) {
    return absl::Status(instance.status().code(),
                        absl::StrCat(kernel_name_, ", which calls ", function_.name(), " on core ",
                                     ordinal, ": ", instance.status().message()));
  }
  const FunctionLibraryRuntime::Handle handle = instance->handle;
  instances_.emplace(std::move(key), *std::move(instance));
  return handle;
}

absl::StatusOr<CoreFunction::Instance> CoreFunction::Instantiate(
    const Key& key, const std::vector<Tensor>& arguments) const {
  TF_ASSIGN_OR_RETURN(
      FunctionLibraryDefinition reachable,
      key.library->GetFunctionLibraryDefinition()->ReachableDefinitions(function_.name()));
  auto definitions = std::make_unique<FunctionLibraryDefinition>(std::move(reachable));
  if (prepare_ != nullptr) TF_RETURN_IF_ERROR(prepare_(arguments, definitions.get()));
  TF_RETURN_IF_ERROR(PlaceOnCore(key.ordinal, MeshShape(GetMachineOptions()), definitions.get()));

  FunctionLibraryRuntime::InstantiateOptions options;
  if (key.library->config_proto() != nullptr) {
    options.config_proto = *key.library->config_proto();
  }
  options.target = key.library->device()->name();
  options.is_multi_device_function = true;
  options.lib_def = definitions.get();
  // Instances for different cores are different functions with the same name.
  options.state_handle = absl::StrCat("tpu_core_", key.ordinal, key.shapes);
  options.input_devices = key.input_devices;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].dtype() != tensorflow::DT_RESOURCE) continue;
    const auto shapes = arguments[i].flat<ResourceHandle>()(0).dtypes_and_shapes();
    if (shapes.size() == 1) options.input_resource_dtypes_and_shapes.emplace(i, shapes[0]);
  }
  for (tensorflow::DataType type : output_types_) {
    // The placer decides where a handle lives.
    options.output_devices.push_back(type == tensorflow::DT_RESOURCE ? "" : options.target);
  }
  Instance instance;
  TF_RETURN_IF_ERROR(key.library->Instantiate(name_, tensorflow::AttrSlice(&function_.attr()),
                                              options, &instance.handle));
  instance.definitions = std::move(definitions);
  return instance;
}

void CoreFunction::Call(OpKernelContext* context, const std::vector<Tensor>& arguments, int ordinal,
                        tensorflow::AsyncOpKernel::DoneCallback done) {
  FunctionLibraryRuntime* library = context->function_library();
  OP_REQUIRES_ASYNC(context, library != nullptr && library->device() != nullptr,
                    absl::InternalError(absl::StrCat(kernel_name_, " has no function library.")),
                    done);
  absl::StatusOr<FunctionLibraryRuntime::Handle> handle = Find(library, arguments, ordinal);
  OP_REQUIRES_OK_ASYNC(context, handle.status(), done);
  struct Call {
    std::vector<Tensor> results;
    std::unique_ptr<tensorflow::ScopedStepContainer> step;
  };
  auto call = std::make_shared<Call>();
  FunctionLibraryRuntime::Options options;
  tensorflow::ResourceMgr* resources = library->device()->resource_manager();
  call->step = std::make_unique<tensorflow::ScopedStepContainer>(
      options.step_id,
      [resources](const std::string& name) { resources->Cleanup(name).IgnoreError(); });
  options.step_container = call->step.get();
  options.cancellation_manager = context->cancellation_manager();
  options.stats_collector = context->stats_collector();
  options.collective_executor = context->collective_executor();
  options.runner = context->runner();
  options.source_device = library->device()->name();
  options.allow_dead_tensors = true;
  library->Run(options, *handle, arguments, &call->results,
               [context, call, done = std::move(done)](const absl::Status& status) {
                 if (status.ok()) {
                   for (size_t i = 0; i < call->results.size(); ++i) {
                     context->set_output(static_cast<int>(i), std::move(call->results[i]));
                   }
                 } else {
                   context->SetStatus(status);
                 }
                 call->step.reset();
                 done();
               });
}

}  // namespace tf_tpu_ext
