// The threads of TensorFlow's kernels that compiled programs call.
//
// A thread that runs a program waits for its kernel, so none of the kernel's work may be queued
// where programs run. Where several cores run, each computes on its own thread; a core that runs
// alone gets helpers, one for each processor, if there is work enough to share out.
#ifndef TF_TPU_EXT_CC_BASE_KERNEL_THREADS_H_
#define TF_TPU_EXT_CC_BASE_KERNEL_THREADS_H_

#include <cstdint>

#include "tensorflow/core/framework/device_base.h"

namespace Eigen {
struct ThreadPoolDevice;
}  // namespace Eigen

namespace tf_tpu_ext {

struct KernelThreads {
  tensorflow::DeviceBase::CpuWorkerThreads workers;
  const Eigen::ThreadPoolDevice* device = nullptr;

  // What a kernel gets that starts now, on a thread of the compute pool. `work` is counted as in
  // kernel_call.h.
  static const KernelThreads& For(int64_t work);
  // The calling thread alone.
  static const KernelThreads& OfCaller();
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_KERNEL_THREADS_H_
