// Kernels by which DTensor would start a TPU system: they say why it can't, before anything runs.
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc/device/virtual_device.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelContext;

// DTensor starts each replica of a program by a call of its own. Here, one call starts them all.
class RefuseDTensorOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override {
    context->SetStatus(absl::UnimplementedError(absl::StrCat(
        type_string(), " (op ", name(),
        "): DTensor does not run on virtual TPU cores. Use a mesh of CPU devices, which computes "
        "the same (tf.experimental.dtensor.create_mesh(..., device_type=\"CPU\")), or "
        "tf.distribute.TPUStrategy.")));
  }
};

REGISTER_KERNEL_BUILDER(
    Name("ConfigureAndInitializeGlobalTPU").Device(kTpuSystemDeviceType).HostMemory("output"),
    RefuseDTensorOp);
REGISTER_KERNEL_BUILDER(
    Name("DTensorSetGlobalTPUArray").Device(kTpuSystemDeviceType).HostMemory("topology"),
    RefuseDTensorOp);
REGISTER_KERNEL_BUILDER(
    Name("ShutdownTPUSystem").Device(kTpuSystemDeviceType).HostMemory("success"), RefuseDTensorOp);

}  // namespace
}  // namespace tf_tpu_ext
