#ifndef TF_TPU_EXT_CC_RUNTIME_YNN_THREADS_H_
#define TF_TPU_EXT_CC_RUNTIME_YNN_THREADS_H_

#include "absl/base/call_once.h"
#include "absl/status/statusor.h"
#include "cc/abi/xla/thunk_params.h"

namespace tf_tpu_ext {

class ComputePool;

// Lets YNNPACK, which computes XLA's matrix products, distribute work over the threads of a compute
// pool. Thread-safe.
class YnnThreads {
 public:
  // The pool must never be destroyed, because what YNNPACK receives from it never is.
  explicit YnnThreads(const ComputePool* pool) : pool_(*pool) {}

  // For runs that use the whole pool. Created on first use, because that starts the threads.
  absl::StatusOr<YnnParams*> Params();

 private:
  const ComputePool& pool_;
  absl::once_flag made_;
  // Written once, under `made_`. Not owned, because TensorFlow exports nothing to destroy it.
  absl::StatusOr<YnnParams>* params_ = nullptr;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_YNN_THREADS_H_
