// The threads that run compiled programs. They belong to no TensorFlow pool, there is one per
// processor whatever the number of cores, and nothing that runs on them may block: collectives and
// host transfers complete asynchronously. Only the XLA of TensorFlow 2.19 waits in collectives;
// there, other threads stand in for those that wait. Of these threads there are two kinds: what
// programs wait for on one must not need others of the same kind.
#ifndef TF_TPU_EXT_CC_BASE_COMPUTE_POOL_H_
#define TF_TPU_EXT_CC_BASE_COMPUTE_POOL_H_

#include <atomic>
#include <functional>
#include <memory>

#include "absl/base/call_once.h"
#include "absl/functional/function_ref.h"
#include "cc/base/waiting_threads.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow/core/platform/threadpool_interface.h"

namespace Eigen {
struct ThreadPoolDevice;
}  // namespace Eigen

namespace tf_tpu_ext {

// Thread-safe. Its threads start when first needed: merely loading the library starts none. Tests
// replace the virtual functions.
class ComputePool {
 public:
  ComputePool();
  virtual ~ComputePool();

  virtual void Schedule(std::function<void()> work);
  // Calls `wait`, which may block until other programs make progress.
  void Wait(absl::FunctionRef<void()> wait);
  virtual int NumThreads() const;
  // Whether the calling thread is one of the pool's.
  virtual bool IsCaller() const;
  const Eigen::ThreadPoolDevice* EigenDevice() const;

  // How many cores are running programs, including those that wait for others. An estimate: changes
  // made by other threads become visible late.
  int NumRuns() const { return num_runs_.load(std::memory_order_relaxed); }
  void AddRuns(int number) { num_runs_.fetch_add(number, std::memory_order_relaxed); }

 private:
  tensorflow::thread::ThreadPool& Threads() const;

  // Unused where collectives don't wait: one kind runs programs, the other parts of large ops, and
  // programs that go on when the last part is done.
  WaitingThreads programs_;
  WaitingThreads parts_;
  const std::unique_ptr<tensorflow::thread::ThreadPoolInterface> waiting_parts_;
  mutable absl::once_flag started_;
  // Written once, under `started_`.
  mutable std::unique_ptr<tensorflow::thread::ThreadPool> threads_;
  mutable std::unique_ptr<tensorflow::thread::ThreadPoolInterface> scoped_;
  mutable std::unique_ptr<Eigen::ThreadPoolDevice> device_;
  std::atomic<int> num_runs_{0};
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_COMPUTE_POOL_H_
