// A kernel that runs inside of another one.
#ifndef TF_TPU_EXT_CC_KERNELS_NESTED_KERNEL_H_
#define TF_TPU_EXT_CC_KERNELS_NESTED_KERNEL_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {

// Computes what the op of `context` asks for by `kernel`, a synchronous one for the same node. If
// it fails, `context` has neither status nor outputs of it. A context of its own is needed anyway:
// synchronous kernels end the process when they fail in the context of an asynchronous one. With
// `keep_inputs` no output takes an input's memory.
absl::Status ComputeNested(tensorflow::OpKernel* kernel, bool keep_inputs,
                           tensorflow::OpKernelContext* context);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_NESTED_KERNEL_H_
