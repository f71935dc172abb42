// Ops that TensorFlow's automatic clustering puts into graphs for other devices. Without kernels of
// their own, cores would get those that every device has, which trust their inputs: a key that was
// not made by an _XlaCompile in this process ends the process.
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc/device/virtual_device.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {
namespace {

class OtherCluster : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) override {
    context->SetStatus(absl::UnimplementedError(absl::StrCat(
        "Op ", name(), " (", type_string(),
        ") is part of a cluster that TensorFlow has made for "
        "another device; TPU cores run none. Load the graph as it was before its clusters were "
        "made, or place the op on a CPU.")));
  }
};

REGISTER_KERNEL_BUILDER(Name("_XlaCompile")
                            .Device(kTpuDeviceType)
                            .HostMemory("constants")
                            .HostMemory("resources")
                            .HostMemory("key")
                            .HostMemory("compilation_successful"),
                        OtherCluster);
REGISTER_KERNEL_BUILDER(Name("_XlaRun").Device(kTpuDeviceType).HostMemory("key"), OtherCluster);

}  // namespace
}  // namespace tf_tpu_ext
