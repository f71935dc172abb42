// Kernels of the ops that move packed ids to a core: TPUCopyWithDynamicShape,
// TPUAnnotateTensorsWithDynamicShape, and GlobalIterId, which numbers the steps of a loop. A core's
// memory is the host's, and a lookup reads no more of a buffer than its row pointers say, so
// buffers stay where they are, including their padding.
#include "absl/strings/str_cat.h"
#include "cc/device/virtual_device.h"
#include "cc/sparse_core/kernel_inputs.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/op_requires.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

int64_t SizeOf(const Tensor& size) {
  return size.dtype() == tensorflow::DT_INT32 ? ValuesOf<int32_t>(size)[0]
                                              : ValuesOf<int64_t>(size)[0];
}

class CopyWithDynamicShapeOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    OpInputList tensors, sizes;
    OP_REQUIRES_OK(context, context->input_list("tensors", &tensors));
    OP_REQUIRES_OK(context, context->input_list("unpadded_sizes", &sizes));
    OP_REQUIRES(context, tensors.size() == sizes.size(),
                absl::InvalidArgumentError(
                    absl::StrCat("Op ", name(), " got ", tensors.size(), " tensors and ",
                                 sizes.size(), " unpadded_sizes; expected one size for each.")));
    for (int i = 0; i < tensors.size(); ++i) {
      const bool valid = tensors[i].dims() > 0 && sizes[i].NumElements() == 1 &&
                         SizeOf(sizes[i]) >= 0 && SizeOf(sizes[i]) <= tensors[i].dim_size(0);
      OP_REQUIRES(context, valid,
                  absl::InvalidArgumentError(
                      absl::StrCat("Op ", name(), " got the unpadded size ", sizes[i].DebugString(),
                                   " for a tensor of shape ", tensors[i].shape().DebugString(),
                                   "; expected a scalar from 0 to its first dimension.")));
      context->set_output(i, tensors[i]);
    }
  }
};

class AnnotateTensorsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override {
    for (int i = 0; i < context->num_inputs(); ++i) context->set_output(i, context->input(i));
  }
};

class GlobalIterIdOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override {
    context->set_output(0, ScalarOf(static_cast<int64_t>(context->frame_iter().iter_id)));
  }
};

REGISTER_KERNEL_BUILDER(Name("GlobalIterId").Device(tensorflow::DEVICE_CPU), GlobalIterIdOp);

#define REGISTER_COPY_KERNELS(device)                                                              \
  REGISTER_KERNEL_BUILDER(Name("TPUCopyWithDynamicShape").Device(device), CopyWithDynamicShapeOp); \
  REGISTER_KERNEL_BUILDER(Name("TPUAnnotateTensorsWithDynamicShape").Device(device),               \
                          AnnotateTensorsOp)
REGISTER_COPY_KERNELS(tensorflow::DEVICE_CPU);
REGISTER_COPY_KERNELS(kTpuDeviceType);

}  // namespace
}  // namespace tf_tpu_ext
