// Kernels that start and stop the TPU system.
#include "cc/base/machine.h"
#include "cc/base/process.h"
#include "cc/device/topology.h"
#include "cc/device/virtual_device.h"
#include "cc/pods/pod.h"
#include "cc/runtime/step_transfers.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class ConfigureDistributedTpuOp : public OpKernel {
 public:
  explicit ConfigureDistributedTpuOp(OpKernelConstruction* construction) : OpKernel(construction) {
    const tensorflow::AttrSlice attributes(construction->def());
    if (!HasPod(attributes)) return;
    const absl::StatusOr<Pod> pod = PodOf(attributes);
    OP_REQUIRES_OK(construction, pod.status());
    hosts_ = pod->shape.hosts;
  }

  void Compute(OpKernelContext* context) override {
    Process::Get().transfers->DropAllQueued();
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &output));
    const MachineOptions machine = GetMachineOptions();
    tensorflow::tpu::TopologyProto topology = MakeTopology(MeshShape(machine), hosts_);
    AddSparseCores(machine.sparse_cores, &topology);
    output->scalar<tensorflow::tstring>()() = topology.SerializeAsString();
  }

 private:
  int hosts_ = 1;
};

// Compiled programs outlive the system, because they depend on nothing that a restart changes.
class ShutdownDistributedTpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override { Process::Get().transfers->DropAllQueued(); }
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
