// For tests: single kernels, run on the devices of a process.
#ifndef TF_TPU_EXT_CC_KERNELS_KERNEL_TESTING_H_
#define TF_TPU_EXT_CC_KERNELS_KERNEL_TESTING_H_

#include <functional>
#include <memory>
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
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/rendezvous.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"
#include "tensorflow/core/public/session_options.h"
#include "tensorflow/core/public/version.h"

namespace tf_tpu_ext {

// A machine of four cores with its host.
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

  // Lets kernels call the function.
  absl::Status AddFunction(const tensorflow::FunctionDef& function) {
    return definitions_.AddFunctionDef(function);
  }

  // A node of the op with the attributes that `fill` adds and those that follow from the inputs'
  // types by AddDefaultsToNodeDef.
  static tensorflow::NodeDef Node(const std::string& op,
                                  const std::function<void(tensorflow::NodeDef*)>& fill = nullptr) {
    tensorflow::NodeDef node;
    node.set_name("node");
    node.set_op(op);
    if (fill != nullptr) fill(&node);
    return node;
  }

  // Runs the node on the device, such as "TPU:0"; returns its outputs.
  absl::StatusOr<std::vector<tensorflow::Tensor>> Run(tensorflow::NodeDef node,
                                                      const std::string& device_name,
                                                      std::vector<tensorflow::Tensor> inputs = {}) {
    const tensorflow::OpDef* op = nullptr;
    TF_RETURN_IF_ERROR(definitions_.LookUpOpDef(node.op(), &op));
    for (size_t i = 0; i < inputs.size(); ++i) node.add_input(absl::StrCat("input", i));
    tensorflow::AddDefaultsToNodeDef(*op, &node);
    tensorflow::Device* const device = this->device(device_name);
    tensorflow::FunctionLibraryRuntime* const library = runtime_.GetFLR(device->name());
    std::shared_ptr<const tensorflow::NodeProperties> properties;
    TF_RETURN_IF_ERROR(
        tensorflow::NodeProperties::CreateFromNodeDef(node, &definitions_, &properties));
    tensorflow::OpKernel* created = nullptr;
    TF_RETURN_IF_ERROR(library->CreateKernel(properties, &created));
    const std::unique_ptr<tensorflow::OpKernel> kernel(created);

    std::vector<tensorflow::TensorValue> values;
    for (tensorflow::Tensor& input : inputs) values.emplace_back(&input);
    const std::vector<tensorflow::AllocatorAttributes> input_attributes(inputs.size());
    const std::vector<tensorflow::AllocatorAttributes> output_attributes(kernel->num_outputs());
    std::function<void(std::function<void()>)> runner = [](const std::function<void()>& work) {
      work();
    };
    tensorflow::OpKernelContext::Params params;
    params.device = device;
    params.op_kernel = kernel.get();
    params.resource_manager = device->resource_manager();
    params.function_library = library;
    params.inputs = values;
    params.input_alloc_attrs = input_attributes;
    params.output_attr_array = output_attributes.data();
    params.runner = &runner;
    tensorflow::DeviceContext* device_context = nullptr;
    TF_RETURN_IF_ERROR(device->TryGetDeviceContext(&device_context));
    const tensorflow::core::ScopedUnref unref(device_context);
    params.op_device_context = device_context;
    tensorflow::OpKernelContext context(&params);
    if (tensorflow::AsyncOpKernel* const async = kernel->AsAsync(); async != nullptr) {
      absl::Notification done;
      device->ComputeAsync(async, &context, [&done] { done.Notify(); });
      done.WaitForNotification();
    } else {
      device->Compute(kernel.get(), &context);
    }
    TF_RETURN_IF_ERROR(context.status());
    std::vector<tensorflow::Tensor> outputs;
    for (int i = 0; i < context.num_outputs(); ++i) {
      const tensorflow::TensorValue output = context.release_output(i);
      outputs.push_back(*output.tensor);
      delete output.tensor;
    }
    return outputs;
  }

 private:
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
