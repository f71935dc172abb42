#include "cc/base/kernel_threads.h"

#include <thread>

#include "absl/synchronization/notification.h"
#include "cc/base/compute_pool.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

constexpr int64_t kMuchWork = KernelThreadPools::kLeastSharedWork;

class PoolOf : public ComputePool {
 public:
  explicit PoolOf(int threads) : threads_(threads) {}
  int NumThreads() const override { return threads_; }

 private:
  const int threads_;
};

TEST(ComputePoolTest, WorksOnThreadsOfItsOwn) {
  ComputePool pool;
  EXPECT_GE(pool.NumThreads(), 1);
  EXPECT_FALSE(pool.IsCaller());
  absl::Notification done;
  bool is_caller = false;
  pool.Schedule([&] {
    is_caller = pool.IsCaller();
    done.Notify();
  });
  done.WaitForNotification();
  EXPECT_TRUE(is_caller);
}

TEST(ComputePoolTest, ThreadsBelongToOnePool) {
  ComputePool pool, other;
  absl::Notification done;
  bool of_other = true;
  pool.Schedule([&] {
    of_other = other.IsCaller();
    done.Notify();
  });
  done.WaitForNotification();
  EXPECT_FALSE(of_other);
}

TEST(ComputePoolTest, CountsRuns) {
  ComputePool pool;
  pool.AddRuns(3);
  pool.AddRuns(-1);
  EXPECT_EQ(pool.NumRuns(), 2);
}

TEST(KernelThreadPoolsTest, ACoreThatRunsAloneGetsHelpersForMuchWork) {
  PoolOf pool(3);
  const KernelThreadPools pools(&pool);
  pool.AddRuns(1);
  const KernelThreads& helpers = pools.For(kMuchWork);
  EXPECT_NE(&helpers, &pools.OfCaller());
  EXPECT_EQ(helpers.workers.num_threads, 3);
  EXPECT_EQ(&pools.For(kMuchWork), &helpers);
  EXPECT_EQ(&pools.For(kMuchWork - 1), &pools.OfCaller());
}

TEST(KernelThreadPoolsTest, CoresThatRunTogetherKeepToTheirThreads) {
  PoolOf pool(3);
  const KernelThreadPools pools(&pool);
  pool.AddRuns(2);
  EXPECT_EQ(&pools.For(kMuchWork), &pools.OfCaller());
  pool.AddRuns(-1);
  EXPECT_NE(&pools.For(kMuchWork), &pools.OfCaller());
}

TEST(KernelThreadPoolsTest, NoHelpersForOneProcessor) {
  PoolOf pool(1);
  const KernelThreadPools pools(&pool);
  EXPECT_EQ(&pools.For(kMuchWork), &pools.OfCaller());
}

TEST(KernelThreadPoolsTest, TheCallersPoolIsTheCaller) {
  PoolOf pool(3);
  const KernelThreadPools pools(&pool);
  const KernelThreads& threads = pools.OfCaller();
  EXPECT_EQ(threads.workers.num_threads, 1);
  std::thread::id worker;
  threads.workers.workers->Schedule([&] { worker = std::this_thread::get_id(); });
  EXPECT_EQ(worker, std::this_thread::get_id());
}

}  // namespace
}  // namespace tf_tpu_ext
