#define EIGEN_USE_THREADS

#include "cc/base/compute_pool.h"

#include <utility>

#include "cc/abi/xla/collectives_wait.h"
#include "tensorflow/core/platform/cpu_info.h"
#include "tensorflow/core/platform/env.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace tf_tpu_ext {
namespace {

// LAPACK calls inside XLA programs need more than the default stack.
constexpr size_t kStackBytes = size_t{8} << 20;

}  // namespace

ComputePool::ComputePool() : programs_(tensorflow::port::MaxParallelism(), kStackBytes) {}
ComputePool::~ComputePool() = default;

tensorflow::thread::ThreadPool& ComputePool::Threads() const {
  absl::call_once(started_, [this] {
    tensorflow::ThreadOptions options;
    options.stack_size = kStackBytes;
    threads_ = std::make_unique<tensorflow::thread::ThreadPool>(
        tensorflow::Env::Default(), options, "tpu_compute", tensorflow::port::MaxParallelism());
    device_ = std::make_unique<Eigen::ThreadPoolDevice>(threads_->AsEigenThreadPool(),
                                                        threads_->NumThreads());
  });
  return *threads_;
}

void ComputePool::Schedule(std::function<void()> work) {
  if constexpr (kCollectivesWait) {
    programs_.Schedule(std::move(work));
  } else {
    Threads().Schedule(std::move(work));
  }
}

const Eigen::ThreadPoolDevice* ComputePool::EigenDevice() const {
  Threads();
  return device_.get();
}

int ComputePool::NumThreads() const { return Threads().NumThreads(); }

bool ComputePool::IsCaller() const {
  return programs_.IsCaller() || Threads().CurrentThreadId() >= 0;
}

}  // namespace tf_tpu_ext
