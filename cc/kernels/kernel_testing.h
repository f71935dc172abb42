// For tests: single kernels, run on the devices of the process.
#ifndef TF_TPU_EXT_CC_KERNELS_KERNEL_TESTING_H_
#define TF_TPU_EXT_CC_KERNELS_KERNEL_TESTING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/log/check.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "cc/base/machine.h"
#include "cc/base/process.h"
#include "cc/device/device_factory.h"
#include "cc/kernels/kernel_proxies.h"
#include "cc/ops/host_update_ops.h"
#include "cc/runtime/process_objects.h"
#include "tensorflow/core/common_runtime/device_factory.h"
#include "tensorflow/core/common_runtime/device_mgr.h"
#include "tensorflow/core/common_runtime/process_function_library_runtime.h"
#include "tensorflow/core/common_runtime/rendezvous_mgr.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/rendezvous.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/lib/core/refcount.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"
#include "tensorflow/core/public/session_options.h"
#include "tensorflow/core/public/version.h"

namespace tf_tpu_ext {

// A machine with four cores and its host.
class KernelRunner {
 public:
  static constexpr int kCores = 4;

  KernelRunner()
      : definitions_(tensorflow::OpRegistry::Global(), tensorflow::FunctionDefLibrary()),
        devices_(MakeDevices()),
        runtime_(&devices_, tensorflow::Env::Default(), /*config=*/nullptr, TF_GRAPH_DEF_VERSION,
                 &definitions_, tensorflow::OptimizerOptions(), /*default_thread_pool=*/nullptr,
                 /*parent=*/nullptr, /*session_metadata=*/nullptr,
                 tensorflow::Rendezvous::Factory(MakeRendezvous)) {}

  static std::string Name(const std::string& device) {
    return absl::StrCat("/job:localhost/replica:0/task:0/device:", device);
  }

  tensorflow::Device* device(const std::string& name) {
    tensorflow::Device* device = nullptr;
    CHECK_OK(devices_.LookupDevice(Name(name), &device));
    return device;
  }

  // Makes the function available to kernels.
  absl::Status AddFunction(const tensorflow::FunctionDef& function) {
    return definitions_.AddFunctionDef(function);
  }

  // A node of the op, with the attributes that `fill` adds and the defaults of
  // AddDefaultsToNodeDef.
  static tensorflow::NodeDef Node(const std::string& op,
                                  const std::function<void(tensorflow::NodeDef*)>& fill = nullptr) {
    tensorflow::NodeDef node;
    node.set_name("node");
    node.set_op(op);
    if (fill != nullptr) fill(&node);
    return node;
  }

  // One run of a kernel.
  class Execution {
   public:
    // Must not run before the kernel is done.
    ~Execution() { CHECK(has_ended()); }

    bool has_ended() const { return done_.HasBeenNotified(); }

    // Waits for the kernel and returns its outputs. Call it only once.
    absl::StatusOr<std::vector<tensorflow::Tensor>> Wait() {
      done_.WaitForNotification();
      TF_RETURN_IF_ERROR(context_->status());
      std::vector<tensorflow::Tensor> outputs;
      for (int i = 0; i < context_->num_outputs(); ++i) {
        const tensorflow::TensorValue output = context_->release_output(i);
        outputs.push_back(*output.tensor);
        delete output.tensor;
      }
      return outputs;
    }

   private:
    friend class KernelRunner;

    // What the kernel refers to while it runs.
    std::shared_ptr<tensorflow::OpKernel> kernel_;
    std::vector<tensorflow::Tensor> inputs_;
    std::vector<tensorflow::TensorValue> values_;
    std::vector<tensorflow::AllocatorAttributes> input_attributes_;
    std::vector<tensorflow::AllocatorAttributes> output_attributes_;
    std::function<void(std::function<void()>)> runner_ = [](const std::function<void()>& work) {
      work();
    };
    tensorflow::core::RefCountPtr<tensorflow::DeviceContext> device_context_;
    tensorflow::OpKernelContext::Params params_;
    std::optional<tensorflow::OpKernelContext> context_;
    absl::Notification done_;
  };

  // The step that a kernel runs in.
  struct Step {
    int64_t id = 0;
    tensorflow::CancellationManager* cancellation = nullptr;
  };

  // The node's kernel for that many inputs, on a device such as "TPU:0".
  absl::StatusOr<std::shared_ptr<tensorflow::OpKernel>> MakeKernel(tensorflow::NodeDef node,
                                                                   const std::string& device_name,
                                                                   size_t num_inputs) {
    const tensorflow::OpDef* op = nullptr;
    TF_RETURN_IF_ERROR(definitions_.LookUpOpDef(node.op(), &op));
    for (size_t i = 0; i < num_inputs; ++i) node.add_input(absl::StrCat("input", i));
    tensorflow::AddDefaultsToNodeDef(*op, &node);
    std::shared_ptr<const tensorflow::NodeProperties> properties;
    TF_RETURN_IF_ERROR(
        tensorflow::NodeProperties::CreateFromNodeDef(node, &definitions_, &properties));
    tensorflow::OpKernel* created = nullptr;
    TF_RETURN_IF_ERROR(runtime_.GetFLR(Name(device_name))->CreateKernel(properties, &created));
    return std::shared_ptr<tensorflow::OpKernel>(created);
  }

  // Starts the kernel on its device. If it is asynchronous, it may still be running when this
  // returns.
  absl::StatusOr<std::unique_ptr<Execution>> Start(std::shared_ptr<tensorflow::OpKernel> kernel,
                                                   const std::string& device_name,
                                                   std::vector<tensorflow::Tensor> inputs,
                                                   const Step& step) {
    tensorflow::Device* const device = this->device(device_name);
    tensorflow::DeviceContext* device_context = nullptr;
    TF_RETURN_IF_ERROR(device->TryGetDeviceContext(&device_context));
    auto execution = std::make_unique<Execution>();
    execution->kernel_ = std::move(kernel);
    execution->device_context_.reset(device_context);
    execution->inputs_ = std::move(inputs);
    for (tensorflow::Tensor& input : execution->inputs_) execution->values_.emplace_back(&input);
    execution->input_attributes_.resize(execution->values_.size());
    execution->output_attributes_.resize(execution->kernel_->num_outputs());
    tensorflow::OpKernelContext::Params& params = execution->params_;
    params.step_id = step.id;
    params.cancellation_manager = step.cancellation;
    params.device = device;
    params.op_kernel = execution->kernel_.get();
    params.resource_manager = device->resource_manager();
    params.function_library = runtime_.GetFLR(device->name());
    params.inputs = execution->values_;
    params.input_alloc_attrs = execution->input_attributes_;
    params.output_attr_array = execution->output_attributes_.data();
    params.runner = &execution->runner_;
    params.op_device_context = device_context;
    tensorflow::OpKernelContext& context = execution->context_.emplace(&params);
    if (auto* const async = execution->kernel_->AsAsync(); async != nullptr) {
      device->ComputeAsync(async, &context, [done = &execution->done_] { done->Notify(); });
    } else {
      device->Compute(execution->kernel_.get(), &context);
      execution->done_.Notify();
    }
    return execution;
  }

  absl::StatusOr<std::unique_ptr<Execution>> Start(tensorflow::NodeDef node,
                                                   const std::string& device_name,
                                                   std::vector<tensorflow::Tensor> inputs,
                                                   const Step& step) {
    TF_ASSIGN_OR_RETURN(std::shared_ptr<tensorflow::OpKernel> kernel,
                        MakeKernel(std::move(node), device_name, inputs.size()));
    return Start(std::move(kernel), device_name, std::move(inputs), step);
  }

  // Runs the node; returns its outputs.
  absl::StatusOr<std::vector<tensorflow::Tensor>> Run(tensorflow::NodeDef node,
                                                      const std::string& device_name,
                                                      std::vector<tensorflow::Tensor> inputs = {}) {
    TF_ASSIGN_OR_RETURN(const std::unique_ptr<Execution> execution,
                        Start(std::move(node), device_name, std::move(inputs), Step()));
    return execution->Wait();
  }

  // The same for a node with one output.
  absl::StatusOr<tensorflow::Tensor> RunOne(tensorflow::NodeDef node,
                                            const std::string& device_name,
                                            std::vector<tensorflow::Tensor> inputs = {}) {
    TF_ASSIGN_OR_RETURN(std::vector<tensorflow::Tensor> outputs,
                        Run(std::move(node), device_name, std::move(inputs)));
    if (outputs.size() != 1) return absl::InternalError(absl::StrCat(outputs.size(), " outputs"));
    return outputs[0];
  }

  // The handle of an uninitialized float variable on the device.
  tensorflow::Tensor Variable(const std::string& device_name, const std::string& name,
                              const tensorflow::TensorShape& shape) {
    absl::StatusOr<tensorflow::Tensor> handle =
        RunOne(OfFloats("VarHandleOp",
                        [&](tensorflow::NodeDef* node) {
                          tensorflow::AddNodeAttr("shape", shape, node);
                          tensorflow::AddNodeAttr("shared_name", name, node);
                        }),
               device_name);
    CHECK_OK(handle.status());
    return *std::move(handle);
  }

  absl::Status Assign(const std::string& device_name, const tensorflow::Tensor& handle,
                      const tensorflow::Tensor& value) {
    return Run(OfFloats("AssignVariableOp"), device_name, {handle, value}).status();
  }

  absl::StatusOr<tensorflow::Tensor> Read(const std::string& device_name,
                                          const tensorflow::Tensor& handle) {
    return RunOne(OfFloats("ReadVariableOp"), device_name, {handle});
  }

 private:
  static tensorflow::NodeDef OfFloats(
      const std::string& op, const std::function<void(tensorflow::NodeDef*)>& fill = nullptr) {
    tensorflow::NodeDef node = Node(op, fill);
    tensorflow::AddNodeAttr("dtype", tensorflow::DT_FLOAT, &node);
    return node;
  }

  static absl::Status MakeRendezvous(
      int64_t /*step*/, const tensorflow::DeviceMgr* devices,
      tensorflow::core::RefCountPtr<tensorflow::Rendezvous>* rendezvous) {
    rendezvous->reset(new tensorflow::RefCountedIntraProcessRendezvous(devices));
    return absl::OkStatus();
  }

  // The registrations that plugin.cc makes when the library is loaded.
  static bool Register() {
    auto* const objects = new ProcessObjects;
    Process::Install(&objects->process());
    MachineOptions options;
    options.cores = kCores;
    CHECK_OK(objects->process().machine->SetOptions(options));
    RegisterDeviceFactories(objects->process().machine,
                            [objects] { return objects->core_threads(); });
    RegisterHostUpdates();
    RegisterKernelProxies();
    return true;
  }

  static std::vector<std::unique_ptr<tensorflow::Device>> MakeDevices() {
    static const bool registered = Register();
    std::vector<std::unique_ptr<tensorflow::Device>> devices;
    if (registered) {
      CHECK_OK(tensorflow::DeviceFactory::AddDevices(tensorflow::SessionOptions(),
                                                     "/job:localhost/replica:0/task:0", &devices));
    }
    return devices;
  }

  tensorflow::FunctionLibraryDefinition definitions_;
  tensorflow::StaticDeviceMgr devices_;
  tensorflow::ProcessFunctionLibraryRuntime runtime_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_KERNEL_TESTING_H_
