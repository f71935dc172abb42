// Functions of tensorflow/compiler/tf2xla that TensorFlow's library exports but no header declares.
#ifndef TF_TPU_EXT_CC_ABI_TENSORFLOW_TF2XLA_H_
#define TF_TPU_EXT_CC_ABI_TENSORFLOW_TF2XLA_H_

#include "tensorflow/core/framework/kernel_def.pb.h"

namespace tensorflow {

// From tensorflow/compiler/tf2xla/xla_cpu_backend.cc: makes the CPU backend's changes to the
// registration of a kernel, and returns whether it accepts the kernel at all. Holds from 2.19 to
// 2.21.
bool CpuOpFilter(KernelDef* kernel);

}  // namespace tensorflow

#endif  // TF_TPU_EXT_CC_ABI_TENSORFLOW_TF2XLA_H_
