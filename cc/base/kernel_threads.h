// The threads for the TensorFlow kernels that compiled programs call.
//
// A thread that runs a program waits for its kernel, so none of the kernel's work may be queued
// where programs run. If several cores run, each computes on its own thread; a core that runs alone
// gets helpers, one for each processor, if there is enough work to share.
#ifndef TF_TPU_EXT_CC_BASE_KERNEL_THREADS_H_
#define TF_TPU_EXT_CC_BASE_KERNEL_THREADS_H_

#include <cstdint>
#include <memory>

#include "absl/base/call_once.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow/core/platform/threadpool_interface.h"

namespace Eigen {
struct ThreadPoolDevice;
}  // namespace Eigen

namespace tf_tpu_ext {

class ComputePool;

// A pool in the forms that TensorFlow's and Eigen's kernels expect.
struct KernelThreads {
  tensorflow::DeviceBase::CpuWorkerThreads workers;
  const Eigen::ThreadPoolDevice* device = nullptr;
};

// Thread-safe. What it returns lives as long as this object.
class KernelThreadPools {
 public:
  // `compute_pool` knows how many cores run, and how many helpers are worth having.
  explicit KernelThreadPools(const ComputePool* compute_pool);
  ~KernelThreadPools();

  // A kernel with less work than this, in the units of cc/program/kernel_call.h, gets no helpers:
  // it takes about 0.1 ms, and waking them takes a tenth of that.
  static constexpr int64_t kLeastSharedWork = 5'000'000;

  // The threads for a kernel that starts now, on a thread of the compute pool.
  const KernelThreads& For(int64_t work) const;
  // The calling thread alone.
  const KernelThreads& OfCaller() const;

 private:
  struct Pool;

  const ComputePool& compute_pool_;
  const std::unique_ptr<tensorflow::thread::ThreadPoolInterface> caller_thread_;
  const std::unique_ptr<Pool> caller_;
  // Made when first needed: its threads cost memory, and many programs call no kernel.
  mutable absl::once_flag made_helpers_;
  mutable std::unique_ptr<Pool> helpers_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_KERNEL_THREADS_H_
