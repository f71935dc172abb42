#ifndef TF_TPU_EXT_CC_RUNTIME_KEPT_TENSORS_H_
#define TF_TPU_EXT_CC_RUNTIME_KEPT_TENSORS_H_

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

// Memory that finished runs of a program leave to later ones, as a list of tensors for each run.
// Keeps as many lists as there were runs at the same time. Thread-safe.
class KeptTensors {
 public:
  void Keep(std::vector<tensorflow::Tensor> tensors) {
    absl::MutexLock lock(&mutex_);
    kept_.push_back(std::move(tensors));
  }

  // Returns the most recently kept list, which may still be in a cache, or an empty list if there
  // is none.
  std::vector<tensorflow::Tensor> Take() {
    absl::MutexLock lock(&mutex_);
    if (kept_.empty()) return {};
    std::vector<tensorflow::Tensor> tensors = std::move(kept_.back());
    kept_.pop_back();
    return tensors;
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::vector<tensorflow::Tensor>> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_KEPT_TENSORS_H_
