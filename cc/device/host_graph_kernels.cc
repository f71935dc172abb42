// Ops that the bridge, and TPU inference graphs, leave in the host graph.
#include <atomic>
#include <cstring>

#include "cc/device/machine.h"
#include "cc/device/virtual_device.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Zeros: what all replicas but the first add to a value that is broadcast by an all-reduce.
class DummyInputOp : public OpKernel {
 public:
  explicit DummyInputOp(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("shape", &shape_));
  }

  void Compute(OpKernelContext* context) override {
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape_, &output));
    if (output->TotalBytes() > 0) std::memset(output->data(), 0, output->TotalBytes());
  }

 private:
  tensorflow::TensorShape shape_;
};

// The next core, in turn: spreads calls of a function over the cores.
class NextCoreOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    static std::atomic<uint32_t> next{0};
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &output));
    output->scalar<int32_t>()() = next.fetch_add(1) % GetMachineOptions().cores;
  }
};

class HostBarrierOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext*) override {}
};

REGISTER_KERNEL_BUILDER(Name("TpuExt>HostBarrier").Device(tensorflow::DEVICE_CPU), HostBarrierOp);
REGISTER_KERNEL_BUILDER(Name("TPUDummyInput").Device(tensorflow::DEVICE_CPU), DummyInputOp);
REGISTER_KERNEL_BUILDER(Name("TPUDummyInput").Device(kTpuDeviceType), DummyInputOp);
REGISTER_KERNEL_BUILDER(Name("TPUOrdinalSelector").Device(tensorflow::DEVICE_CPU), NextCoreOp);
REGISTER_KERNEL_BUILDER(Name("TPURoundRobin").Device(tensorflow::DEVICE_CPU), NextCoreOp);

}  // namespace
}  // namespace tf_tpu_ext
