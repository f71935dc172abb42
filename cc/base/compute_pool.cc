#define EIGEN_USE_THREADS

#include "cc/base/compute_pool.h"

#include <utility>

#include "cc/abi/xla/collectives_wait.h"
#include "cc/abi/xla/thunks_name_run.h"
#include "cc/base/run_scope.h"
#include "tensorflow/core/platform/cpu_info.h"
#include "tensorflow/core/platform/env.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace tf_tpu_ext {
namespace {

// LAPACK calls inside XLA programs need more than the default stack.
constexpr size_t kStackBytes = size_t{8} << 20;

// Lets Eigen and TensorFlow's kernels use threads that are replaced while they wait.
class WaitingThreadPool : public tensorflow::thread::ThreadPoolInterface {
 public:
  explicit WaitingThreadPool(WaitingThreads* threads) : threads_(*threads) {}

  void Schedule(std::function<void()> work) override { threads_.Schedule(std::move(work)); }
  int NumThreads() const override { return threads_.NumWorking(); }
  int CurrentThreadId() const override { return threads_.Slot(); }

 private:
  WaitingThreads& threads_;
};

// Parts of a run have the run's scope in a profile.
class ScopedThreadPool : public tensorflow::thread::ThreadPoolInterface {
 public:
  explicit ScopedThreadPool(Eigen::ThreadPoolInterface* threads) : threads_(*threads) {}

  void Schedule(std::function<void()> work) override {
    threads_.Schedule(RunScope::Extend(std::move(work)));
  }
  void ScheduleWithHint(std::function<void()> work, int start, int end) override {
    threads_.ScheduleWithHint(RunScope::Extend(std::move(work)), start, end);
  }
  int NumThreads() const override { return threads_.NumThreads(); }
  int CurrentThreadId() const override { return threads_.CurrentThreadId(); }

 private:
  Eigen::ThreadPoolInterface& threads_;
};

}  // namespace

ComputePool::ComputePool()
    : programs_(tensorflow::port::MaxParallelism(), kStackBytes),
      parts_(tensorflow::port::MaxParallelism(), kStackBytes),
      waiting_parts_(std::make_unique<WaitingThreadPool>(&parts_)) {}
ComputePool::~ComputePool() = default;

tensorflow::thread::ThreadPool& ComputePool::Threads() const {
  absl::call_once(started_, [this] {
    if constexpr (kCollectivesWait) {
      threads_ = std::make_unique<tensorflow::thread::ThreadPool>(waiting_parts_.get());
    } else {
      tensorflow::ThreadOptions options;
      options.stack_size = kStackBytes;
      threads_ = std::make_unique<tensorflow::thread::ThreadPool>(
          tensorflow::Env::Default(), options, "tpu_compute", tensorflow::port::MaxParallelism());
    }
    Eigen::ThreadPoolInterface* threads = threads_->AsEigenThreadPool();
    if constexpr (!kThunksNameRun) {
      scoped_ = std::make_unique<ScopedThreadPool>(threads);
      threads = scoped_.get();
    }
    device_ = std::make_unique<Eigen::ThreadPoolDevice>(threads, threads_->NumThreads());
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

void ComputePool::Wait(absl::FunctionRef<void()> wait) {
  if (parts_.IsCaller()) {
    parts_.Wait(wait);
  } else {
    programs_.Wait(wait);
  }
}

bool ComputePool::IsCaller() const {
  return programs_.IsCaller() || parts_.IsCaller() || Threads().CurrentThreadId() >= 0;
}

}  // namespace tf_tpu_ext
