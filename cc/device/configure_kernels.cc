// Kernels that start and stop the TPU system.
#include <array>
#include <string>

#include "cc/device/machine.h"
#include "cc/device/virtual_device.h"
#include "cc/transfer/channels.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/protobuf/tpu/topology.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class ConfigureDistributedTpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const int cores = GetMachineOptions().cores;
    DropAllFeeds(cores);
    tensorflow::tpu::TopologyProto topology;
    for (int extent : MeshShape(cores)) topology.add_mesh_shape(extent);
    topology.set_num_tasks(1);
    topology.set_num_tpu_devices_per_task(cores);
    for (const std::array<int, 4>& coordinates : CoreCoordinates(cores)) {
      for (int coordinate : coordinates) topology.add_device_coordinates(coordinate);
    }
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &output));
    output->scalar<tensorflow::tstring>()() = topology.SerializeAsString();
  }
};

// Compiled programs outlive the system: they depend on nothing that a restart changes.
class ShutdownDistributedTpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override {}
};

REGISTER_KERNEL_BUILDER(
    Name("ConfigureDistributedTPU").Device(kTpuSystemDeviceType).HostMemory("topology"),
    ConfigureDistributedTpuOp);
REGISTER_KERNEL_BUILDER(Name("ConfigureDistributedTPU").Device(tensorflow::DEVICE_CPU),
                        ConfigureDistributedTpuOp);
REGISTER_KERNEL_BUILDER(Name("ShutdownDistributedTPU").Device(kTpuSystemDeviceType),
                        ShutdownDistributedTpuOp);
REGISTER_KERNEL_BUILDER(Name("ShutdownDistributedTPU").Device(tensorflow::DEVICE_CPU),
                        ShutdownDistributedTpuOp);

}  // namespace
}  // namespace tf_tpu_ext
