#define EIGEN_USE_THREADS

#include "cc/base/kernel_threads.h"

#include <functional>
#include <utility>

#include "cc/base/compute_pool.h"
#include "tensorflow/core/platform/env.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace tf_tpu_ext {
namespace {

using tensorflow::thread::ThreadPool;

// A pool whose only thread is the caller's.
class CallerThread : public tensorflow::thread::ThreadPoolInterface {
 public:
  void Schedule(std::function<void()> work) override { work(); }
  int NumThreads() const override { return 1; }
  // On a thread of the pool, oneDNN does not split work.
  int CurrentThreadId() const override { return 0; }
};

}  // namespace

struct KernelThreadPools::Pool {
  explicit Pool(std::unique_ptr<ThreadPool> made)
      : pool(std::move(made)), device(pool->AsEigenThreadPool(), pool->NumThreads()) {
    threads.workers.num_threads = pool->NumThreads();
    threads.workers.workers = pool.get();
    threads.device = &device;
  }

  const std::unique_ptr<ThreadPool> pool;
  const Eigen::ThreadPoolDevice device;
  KernelThreads threads;
};

KernelThreadPools::KernelThreadPools(const ComputePool* compute_pool)
    : compute_pool_(*compute_pool),
      caller_thread_(std::make_unique<CallerThread>()),
      caller_(std::make_unique<Pool>(std::make_unique<ThreadPool>(caller_thread_.get()))) {}

KernelThreadPools::~KernelThreadPools() = default;

const KernelThreads& KernelThreadPools::OfCaller() const { return caller_->threads; }

const KernelThreads& KernelThreadPools::For(int64_t work) const {
  if (work < kLeastSharedWork || compute_pool_.NumRuns() > 1 || compute_pool_.NumThreads() <= 1) {
    return OfCaller();
  }
  absl::call_once(made_helpers_, [this] {
    helpers_ = std::make_unique<Pool>(std::make_unique<ThreadPool>(
        tensorflow::Env::Default(), "tpu_kernel", compute_pool_.NumThreads()));
  });
  return helpers_->threads;
}

}  // namespace tf_tpu_ext
