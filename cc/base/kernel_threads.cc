#define EIGEN_USE_THREADS

#include "cc/base/kernel_threads.h"

#include <functional>
#include <utility>

#include "cc/base/compute_pool.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow/core/platform/threadpool_interface.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace tf_tpu_ext {
namespace {

// About 0.1 ms: waking helpers takes a tenth of that.
constexpr int64_t kLeastSharedWork = 5'000'000;

// A pool of one thread, which is always the caller's.
class CallerThread : public tensorflow::thread::ThreadPoolInterface {
 public:
  void Schedule(std::function<void()> work) override { work(); }
  int NumThreads() const override { return 1; }
  // oneDNN splits no work on a thread of the pool.
  int CurrentThreadId() const override { return 0; }
};

KernelThreads OnPool(tensorflow::thread::ThreadPool* pool) {
  KernelThreads threads;
  threads.workers.num_threads = pool->NumThreads();
  threads.workers.workers = pool;
  threads.device = new Eigen::ThreadPoolDevice(pool->AsEigenThreadPool(), pool->NumThreads());
  return threads;
}

const KernelThreads& OnHelpers() {
  static auto* const threads = new KernelThreads(OnPool(new tensorflow::thread::ThreadPool(
      tensorflow::Env::Default(), "tpu_kernel", ComputePool::NumThreads())));
  return *threads;
}

}  // namespace

const KernelThreads& KernelThreads::OfCaller() {
  static auto* const threads =
      new KernelThreads(OnPool(new tensorflow::thread::ThreadPool(new CallerThread)));
  return *threads;
}

const KernelThreads& KernelThreads::For(int64_t work) {
  const bool share =
      work >= kLeastSharedWork && ComputePool::NumRuns() <= 1 && ComputePool::NumThreads() > 1;
  return share ? OnHelpers() : OfCaller();
}

}  // namespace tf_tpu_ext
