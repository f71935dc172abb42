#ifndef TF_TPU_EXT_CC_KERNELS_KERNEL_PROXIES_H_
#define TF_TPU_EXT_CC_KERNELS_KERNEL_PROXIES_H_

namespace tf_tpu_ext {

// Lets ops run on the virtual devices outside compiled programs: eager ops, variables, control flow
// and function calls on /device:TPU:i use the CPU's kernels. Ops that XLA does not know get no TPU
// kernel, as on a real TPU. Must be called once, on one thread, after the kernels of TensorFlow and
// of this library are registered: it goes through the registry as it is at that time.
void RegisterKernelProxies();

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_KERNEL_PROXIES_H_
