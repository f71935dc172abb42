// A kernel that runs inside another one.
#ifndef TF_TPU_EXT_CC_KERNELS_NESTED_KERNEL_H_
#define TF_TPU_EXT_CC_KERNELS_NESTED_KERNEL_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {

// Computes the op of `context` with `kernel`, a synchronous kernel for the same node. If it fails,
// `context` gets neither its status nor its outputs. A context of its own is needed anyway:
// synchronous kernels end the process when they fail in the context of an asynchronous one. With
// `keep_inputs`, no output reuses an input's memory.
absl::Status ComputeNested(tensorflow::OpKernel* kernel, bool keep_inputs,
                           tensorflow::OpKernelContext* context);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_NESTED_KERNEL_H_
