// TPUPartitionedCall: calls a function whose TPU computations run on the core that an input names.
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "cc/device/core_placement.h"
#include "cc/device/machine.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/op_requires.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::FunctionLibraryRuntime;
using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::ResourceHandle;
using tensorflow::Tensor;

class PartitionedCallOp : public AsyncOpKernel {
 public:
  explicit PartitionedCallOp(OpKernelConstruction* construction) : AsyncOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("f", &function_));
  }

  ~PartitionedCallOp() override {
    for (const auto& [key, instance] : instances_) {
      key.library->ReleaseHandle(instance.handle).IgnoreError();
    }
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    FunctionLibraryRuntime* library = context->function_library();
    OP_REQUIRES_ASYNC(context, library != nullptr && library->device() != nullptr,
                      absl::InternalError(absl::StrCat(name(), " has no function library.")), done);
    OpInputList arguments;
    OP_REQUIRES_OK_ASYNC(context, context->input_list("args", &arguments), done);
    const Tensor& ordinal = context->input(context->num_inputs() - 1);
    OP_REQUIRES_ASYNC(context, ordinal.NumElements() == 1,
                      absl::InvalidArgumentError(absl::StrCat(
                          name(), " expects one number as device_ordinal, got a tensor of shape ",
                          ordinal.shape().DebugString(), ". Pass the number of a core.")),
                      done);
    absl::StatusOr<FunctionLibraryRuntime::Handle> handle =
        Find(library, arguments, ordinal.flat<int32_t>()(0));
    OP_REQUIRES_OK_ASYNC(context, handle.status(), done);
    Run(context, library, *handle, {arguments.begin(), arguments.end()}, std::move(done));
  }

 private:
  // What an instance of the function was made for.
  struct Key {
    FunctionLibraryRuntime* library = nullptr;
    int ordinal = 0;
    std::vector<std::string> input_devices;

    bool operator<(const Key& other) const {
      return std::tie(library, ordinal, input_devices) <
             std::tie(other.library, other.ordinal, other.input_devices);
    }
  };

  struct Instance {
    FunctionLibraryRuntime::Handle handle;
    // What `handle` refers to.
    std::unique_ptr<const FunctionLibraryDefinition> definitions;
  };

  absl::StatusOr<FunctionLibraryRuntime::Handle> Find(FunctionLibraryRuntime* library,
                                                      const OpInputList& arguments, int ordinal) {
    Key key{library, ordinal, {}};
    for (const Tensor& argument : arguments) {
      key.input_devices.push_back(argument.dtype() == tensorflow::DT_RESOURCE
                                      ? argument.flat<ResourceHandle>()(0).device()
                                      : library->device()->name());
    }
    absl::MutexLock lock(&mutex_);
    const auto found = instances_.find(key);
    if (found != instances_.end()) return found->second.handle;
    absl::StatusOr<Instance> instance = Instantiate(key, arguments);
    if (!instance.ok()) {
      return absl::Status(instance.status().code(),
                          absl::StrCat(name(), ", which calls ", function_.name(), " on core ",
                                       ordinal, ": ", instance.status().message()));
    }
    const FunctionLibraryRuntime::Handle handle = instance->handle;
    instances_.emplace(std::move(key), *std::move(instance));
    return handle;
  }

  absl::StatusOr<Instance> Instantiate(const Key& key, const OpInputList& arguments) const {
    absl::StatusOr<FunctionLibraryDefinition> reachable =
        key.library->GetFunctionLibraryDefinition()->ReachableDefinitions(function_.name());
    if (!reachable.ok()) return reachable.status();
    auto definitions = std::make_unique<FunctionLibraryDefinition>(*std::move(reachable));
    absl::Status status = PlaceOnCore(key.ordinal, GetMachineOptions().cores, definitions.get());
    if (!status.ok()) return status;

    FunctionLibraryRuntime::InstantiateOptions options;
    if (key.library->config_proto() != nullptr) {
      options.config_proto = *key.library->config_proto();
    }
    options.target = key.library->device()->name();
    options.is_multi_device_function = true;
    options.lib_def = definitions.get();
    // Instances of different cores are different functions of one name.
    options.state_handle = absl::StrCat("tpu_core_", key.ordinal);
    options.input_devices = key.input_devices;
    for (int i = 0; i < arguments.size(); ++i) {
      if (arguments[i].dtype() != tensorflow::DT_RESOURCE) continue;
      const auto shapes = arguments[i].flat<ResourceHandle>()(0).dtypes_and_shapes();
      if (shapes.size() == 1) options.input_resource_dtypes_and_shapes.emplace(i, shapes[0]);
    }
    for (int i = 0; i < num_outputs(); ++i) {
      // Where a handle lives is for the placer to say.
      options.output_devices.push_back(output_type(i) == tensorflow::DT_RESOURCE ? ""
                                                                                 : options.target);
    }
    Instance instance;
    status = key.library->Instantiate(function_.name(), tensorflow::AttrSlice(&function_.attr()),
                                      options, &instance.handle);
    if (!status.ok()) return status;
    instance.definitions = std::move(definitions);
    return instance;
  }

  static void Run(OpKernelContext* context, FunctionLibraryRuntime* library,
                  FunctionLibraryRuntime::Handle handle, std::vector<Tensor> arguments,
                  DoneCallback done) {
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
    library->Run(options, handle, arguments, &call->results,
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

  tensorflow::NameAttrList function_;
  absl::Mutex mutex_;
  std::map<Key, Instance> instances_ ABSL_GUARDED_BY(mutex_);
};

REGISTER_KERNEL_BUILDER(Name("TPUPartitionedCall").Device(tensorflow::DEVICE_CPU),
                        PartitionedCallOp);

}  // namespace
}  // namespace tf_tpu_ext
