#include <set>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "cc/runtime/launch_table.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

TEST(NextLaunchIdTest, NeverRepeats) {
  constexpr int kThreads = 4, kLaunches = 2000;
  absl::Mutex mutex;
  std::set<LaunchId> seen;
  LaunchTable table{LaunchServices()};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      std::vector<LaunchId> mine;
      for (int i = 0; i < kLaunches; ++i) mine.push_back(table.NextLaunchId());
      absl::MutexLock lock(&mutex);
      seen.insert(mine.begin(), mine.end());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen.size(), kThreads * kLaunches);
  // 0 means no launch: infeed and outfeed.
  EXPECT_GT(*seen.begin(), LaunchId(0));
}

}  // namespace
}  // namespace tf_tpu_ext
