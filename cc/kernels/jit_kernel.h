#ifndef TF_TPU_EXT_CC_KERNELS_JIT_KERNEL_H_
#define TF_TPU_EXT_CC_KERNELS_JIT_KERNEL_H_

namespace tf_tpu_ext {

// Makes functions that TensorFlow compiles as a whole (jit_compile=True, and every function called
// on a TPU device) run on virtual cores. On other devices, TensorFlow's own kernel runs them.
void RegisterJitKernels();

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_JIT_KERNEL_H_
