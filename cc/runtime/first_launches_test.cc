#include "cc/runtime/first_launches.h"

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

TEST(FirstLaunchesTest, KeepsTheTimesOfRuns) {
  FirstLaunches launches;
  const auto times = launches.Begin(7, RunId(3));
  ASSERT_NE(times, nullptr);
  const size_t first = times->BeginRun({Core(0)});
  const size_t second = times->BeginRun({Core(1), Core(2)});
  times->EndRun(second);
  times->EndRun(first);
  times->End();
  const std::vector<TimedLaunch> kept = launches.Get();
  ASSERT_EQ(kept.size(), 1);
  EXPECT_EQ(kept[0].program_id, 7);
  EXPECT_EQ(kept[0].run_id, RunId(3));
  ASSERT_EQ(kept[0].runs.size(), 2);
  EXPECT_EQ(kept[0].runs[1].cores, (std::vector<Core>{Core(1), Core(2)}));
  EXPECT_LE(kept[0].begin, kept[0].runs[0].begin);
  EXPECT_LE(kept[0].runs[0].begin, kept[0].runs[0].end);
  EXPECT_LE(kept[0].runs[1].end, kept[0].end);
}

TEST(FirstLaunchesTest, ARunThatGoesOnHasNoEnd) {
  FirstLaunches launches;
  launches.Begin(1, RunId(1))->BeginRun({Core(0)});
  const std::vector<TimedLaunch> kept = launches.Get();
  EXPECT_EQ(kept[0].runs[0].end, absl::InfinitePast());
  EXPECT_EQ(kept[0].end, absl::InfinitePast());
}

TEST(FirstLaunchesTest, EachProgramHasItsFirstLaunchesOnly) {
  FirstLaunches launches;
  for (int i = 0; i < FirstLaunches::kMostOfProgram; ++i) {
    EXPECT_NE(launches.Begin(1, RunId(i)), nullptr);
  }
  EXPECT_EQ(launches.Begin(1, RunId(1000)), nullptr);
  EXPECT_NE(launches.Begin(2, RunId(1001)), nullptr);
}

TEST(FirstLaunchesTest, ManyProgramsFillItUp) {
  FirstLaunches launches;
  for (size_t i = 0; i < FirstLaunches::kMost + 10; ++i) {
    const auto times = launches.Begin(static_cast<int64_t>(i), RunId(1));
    EXPECT_EQ(times != nullptr, i < FirstLaunches::kMost);
  }
  EXPECT_EQ(launches.Get().size(), FirstLaunches::kMost);
}

}  // namespace
}  // namespace tf_tpu_ext
