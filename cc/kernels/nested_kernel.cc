#include "cc/kernels/nested_kernel.h"

#include <memory>
#include <vector>

namespace tf_tpu_ext {

absl::Status ComputeNested(tensorflow::OpKernel* kernel, bool keep_inputs,
                           tensorflow::OpKernelContext* context) {
  using Params = tensorflow::OpKernelContext::Params;
  const int outputs = context->num_outputs();
  Params params = *context->params();
  params.eigen_gpu_device = nullptr;  // Each Params deletes its own.
  params.op_kernel = kernel;
  const std::vector<int> never(outputs, Params::kNeverForward);
  if (keep_inputs) params.forward_from_array = never.data();
  tensorflow::OpKernelContext nested(&params, outputs);
  kernel->Compute(&nested);
  if (!nested.status().ok()) return nested.status();
  for (int i = 0; i < outputs; ++i) {
    const std::unique_ptr<tensorflow::Tensor> output(nested.release_output(i).tensor);
    if (output != nullptr) context->set_output(i, *output);
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
