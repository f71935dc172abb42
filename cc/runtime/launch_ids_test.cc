#include "cc/runtime/launch_ids.h"

#include <cstdint>
#include <set>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

TEST(ParseReplicaPlaceTest, ReplicasOfAGroupShareIt) {
  const ReplicaPlace first = ParseReplicaPlace("Identity_2", "r0:0");
  const ReplicaPlace last = ParseReplicaPlace("Identity_6", "r0:11");
  EXPECT_EQ(first.replica, 0);
  EXPECT_EQ(last.replica, 11);
  EXPECT_EQ(first.group, last.group);
}

TEST(ParseReplicaPlaceTest, GroupsAndScopesDiffer) {
  const ReplicaPlace place = ParseReplicaPlace("a/compile", "r0:1");
  EXPECT_NE(place.group, ParseReplicaPlace("a/compile", "r1:1").group);
  EXPECT_NE(place.group, ParseReplicaPlace("b/compile", "r0:1").group);
  EXPECT_NE(place.group, ParseReplicaPlace("compile", "r0:1").group);
  EXPECT_EQ(place.group, ParseReplicaPlace("a/compile_1", "r0:0").group);
}

TEST(ParseReplicaPlaceTest, OtherParallelRegionsStayInTheGroup) {
  const ReplicaPlace place = ParseReplicaPlace("compile", "r2:3,p1:0");
  EXPECT_EQ(place.replica, 3);
  EXPECT_EQ(place.group, ParseReplicaPlace("compile", "r2:0,p1:0").group);
  EXPECT_NE(place.group, ParseReplicaPlace("compile", "r2:3,p1:1").group);
}

TEST(ParseReplicaPlaceTest, AnOpForAllReplicasHasNone) {
  for (const char* ids : {"", "p0:1", "r0", "r0:", "r0:x"}) {
    EXPECT_FALSE(ParseReplicaPlace("compile", ids).in_replica()) << ids;
  }
}

TEST(NextLaunchIdTest, NeverRepeats) {
  constexpr int kThreads = 4, kLaunches = 2000;
  absl::Mutex mutex;
  std::set<int64_t> seen;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      std::vector<int64_t> mine;
      for (int i = 0; i < kLaunches; ++i) mine.push_back(NextLaunchId());
      absl::MutexLock lock(&mutex);
      seen.insert(mine.begin(), mine.end());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen.size(), kThreads * kLaunches);
  // 0 means no launch: infeed and outfeed.
  EXPECT_GT(*seen.begin(), 0);
}

}  // namespace
}  // namespace tf_tpu_ext
