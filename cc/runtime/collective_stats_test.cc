#include "cc/runtime/collective_stats.h"

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

CollectiveMeeting MeetingAt(const std::vector<std::pair<int, int>>& milliseconds) {
  CollectiveMeeting meeting;
  meeting.name = "all-reduce";
  meeting.run_id = RunId(1);
  for (const auto& [core, time] : milliseconds) {
    meeting.arrivals.emplace_back(Core(core), absl::UnixEpoch() + absl::Milliseconds(time));
  }
  return meeting;
}

TEST(CollectiveStatsTest, SaysWhoWaitedAndForWhom) {
  CollectiveStats stats;
  stats.Count(MeetingAt({{1, 10}, {0, 30}, {2, 25}}), 8);
  stats.Count(MeetingAt({{0, 100}, {2, 140}, {1, 100}}), 8);
  const std::vector<CollectiveTotals> totals = stats.Totals();
  ASSERT_EQ(totals.size(), 1);
  EXPECT_EQ(totals[0].meetings, 2);
  EXPECT_EQ(totals[0].bytes, 8);
  const std::vector<CoreWaits>& cores = totals[0].cores;
  ASSERT_EQ(cores.size(), 3);
  EXPECT_EQ(cores[0].core, Core(0));
  EXPECT_EQ(cores[0].waited, absl::Milliseconds(40));
  EXPECT_EQ(cores[1].waited, absl::Milliseconds(60));
  EXPECT_EQ(cores[2].waited, absl::Milliseconds(5));
  EXPECT_EQ(cores[0].times_last, 1);
  EXPECT_EQ(cores[0].kept_waiting, absl::Milliseconds(25));
  EXPECT_EQ(cores[1].times_last, 0);
  EXPECT_EQ(cores[2].kept_waiting, absl::Milliseconds(80));
}

TEST(CollectiveStatsTest, OtherCoresAndSizesAreOthers) {
  CollectiveStats stats;
  stats.Count(MeetingAt({{0, 0}, {1, 0}}), 8);
  stats.Count(MeetingAt({{0, 0}, {1, 0}}), 16);
  stats.Count(MeetingAt({{2, 0}, {3, 0}}), 8);
  EXPECT_EQ(stats.Totals().size(), 3);
  EXPECT_EQ(stats.Meetings().size(), 3);
}

TEST(CollectiveStatsTest, KeepsTheFirstMeetingsOnly) {
  CollectiveStats stats;
  for (size_t i = 0; i < CollectiveStats::kMostMeetings + 5; ++i) {
    stats.Count(MeetingAt({{0, 0}}), static_cast<int64_t>(i % 2000));
  }
  EXPECT_EQ(stats.Meetings().size(), CollectiveStats::kMostMeetings);
  EXPECT_EQ(stats.Totals().size(), CollectiveStats::kMostKinds);
}

}  // namespace
}  // namespace tf_tpu_ext
