#include "cc/profile/meetings.h"

#include <string>

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

RecordedWait WaitOf(int core, int64_t begin, int64_t end, const std::string& meeting = "sum",
                    int64_t run_id = 1) {
  RecordedWait wait;
  wait.name = "all-reduce";
  wait.meeting = meeting;
  wait.run_id = RunId(run_id);
  wait.core = Core(core);
  wait.begin = begin;
  wait.end = end;
  return wait;
}

// The core's wait that began at that time; the test fails if there is none.
RecordedWait Find(const std::vector<RecordedWait>& waits, int core, int64_t begin) {
  for (const RecordedWait& wait : waits) {
    if (wait.core == Core(core) && wait.begin == begin) return wait;
  }
  ADD_FAILURE() << "Core " << core << " has no wait that began at " << begin;
  return {};
}

TEST(MeetingsTest, AllWaitForTheLast) {
  const auto waits = FindWhoWasLast({WaitOf(0, 10, 50), WaitOf(1, 40, 50), WaitOf(2, 20, 50)});
  ASSERT_EQ(waits.size(), 2);
  for (const auto& [core, begin] : {std::pair(0, 10), std::pair(2, 20)}) {
    const RecordedWait wait = Find(waits, core, begin);
    EXPECT_EQ(wait.waited_for, Core(1));
    EXPECT_EQ(wait.end, 40);
  }
}

TEST(MeetingsTest, EachMeetingOfANameHasALastOneOfItsOwn) {
  const auto waits =
      FindWhoWasLast({WaitOf(0, 10, 30), WaitOf(1, 20, 30), WaitOf(1, 40, 60), WaitOf(0, 50, 60)});
  ASSERT_EQ(waits.size(), 2);
  EXPECT_EQ(Find(waits, 0, 10).waited_for, Core(1));
  EXPECT_EQ(Find(waits, 1, 40).waited_for, Core(0));
}

TEST(MeetingsTest, RunsAndNamesAreApart) {
  const auto waits = FindWhoWasLast(
      {WaitOf(0, 10, 30, "a"), WaitOf(1, 20, 30, "b"), WaitOf(1, 25, 30, "a", /*run_id=*/2)});
  EXPECT_TRUE(waits.empty());
}

TEST(MeetingsTest, OtherWaitsStayAsTheyAre) {
  RecordedWait call = WaitOf(3, 5, 9, /*meeting=*/"");
  const auto waits = FindWhoWasLast({call});
  ASSERT_EQ(waits.size(), 1);
  EXPECT_EQ(waits[0].end, 9);
  EXPECT_FALSE(waits[0].waited_for.has_value());
}

}  // namespace
}  // namespace tf_tpu_ext
