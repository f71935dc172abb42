#define EIGEN_USE_THREADS

#include "cc/base/compute_pool.h"

#include <atomic>
#include <utility>

#include "tensorflow/core/platform/cpu_info.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/threadpool.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace tf_tpu_ext {
namespace {

// LAPACK calls inside XLA programs need more than the default stack.
constexpr size_t kStackBytes = size_t{8} << 20;

tensorflow::thread::ThreadPool& Pool() {
  static auto* pool = [] {
    tensorflow::ThreadOptions options;
    options.stack_size = kStackBytes;
    return new tensorflow::thread::ThreadPool(tensorflow::Env::Default(), options, "tpu_compute",
                                              tensorflow::port::MaxParallelism());
  }();
  return *pool;
}

std::atomic<int> num_runs{0};

}  // namespace

void ComputePool::Schedule(std::function<void()> work) { Pool().Schedule(std::move(work)); }

const Eigen::ThreadPoolDevice* ComputePool::EigenDevice() {
  static auto* device =
      new Eigen::ThreadPoolDevice(Pool().AsEigenThreadPool(), Pool().NumThreads());
  return device;
}

int ComputePool::NumThreads() { return Pool().NumThreads(); }

bool ComputePool::IsCaller() { return Pool().CurrentThreadId() >= 0; }

int ComputePool::NumRuns() { return num_runs.load(std::memory_order_relaxed); }

void ComputePool::AddRuns(int number) { num_runs.fetch_add(number, std::memory_order_relaxed); }

}  // namespace tf_tpu_ext
