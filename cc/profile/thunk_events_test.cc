#include "cc/profile/thunk_events.h"

#include "cc/base/run_scope.h"
#include "gtest/gtest.h"
#include "xla/tsl/profiler/utils/xplane_builder.h"
#include "xla/tsl/profiler/utils/xplane_schema.h"

namespace tf_tpu_ext {
namespace {

using tsl::profiler::StatType;
using tsl::profiler::XEventBuilder;
using tsl::profiler::XLineBuilder;
using tsl::profiler::XPlaneBuilder;

// The host's threads as TensorFlow's tracer records them.
class ThunkEventsTest : public ::testing::Test {
 protected:
  ThunkEventsTest() : plane_(space_.add_planes()) {
    plane_.SetName(tsl::profiler::kHostThreadsPlaneName);
  }

  XEventBuilder AddEvent(int64_t thread, const std::string& name, int64_t begin, int64_t end) {
    XLineBuilder line = plane_.GetOrCreateLine(thread);
    line.SetTimestampNs(start_);
    XEventBuilder event = line.AddEvent(*plane_.GetOrCreateEventMetadata(name));
    event.SetTimestampNs(begin);
    event.SetEndTimestampNs(end);
    return event;
  }

  void AddStat(XEventBuilder* event, StatType type, int64_t value) {
    event->AddStatValue(*plane_.GetOrCreateStatMetadata(tsl::profiler::GetStatTypeStr(type)),
                        value);
  }

  XEventBuilder AddOpWithoutRun(int64_t thread, const std::string& op, int64_t begin, int64_t end) {
    XEventBuilder event = AddEvent(thread, op, begin, end);
    event.AddStatValue(
        *plane_.GetOrCreateStatMetadata(tsl::profiler::GetStatTypeStr(StatType::kHloOp)),
        *plane_.GetOrCreateStatMetadata(op));
    return event;
  }

  void AddScope(int64_t thread, int64_t begin, int64_t end, int64_t run_id, int64_t device) {
    XEventBuilder event = AddEvent(thread, RunScope::kEvent, begin, end);
    AddStat(&event, StatType::kRunId, run_id);
    AddStat(&event, StatType::kDeviceOrdinal, device);
  }

  // `context` is what the op's end refers to.
  void AddOp(int64_t thread, const std::string& op, int64_t begin, int64_t end, int64_t context) {
    XEventBuilder event = AddOpWithoutRun(thread, op, begin, end);
    AddStat(&event, StatType::kRunId, 8);
    AddStat(&event, StatType::kDeviceOrdinal, 2);
    AddStat(&event, StatType::kProducerId, context);
  }

  void AddEnd(int64_t thread, const std::string& op, int64_t time, int64_t context) {
    XEventBuilder event = AddEvent(thread, "end: " + op, time, time + 1);
    AddStat(&event, StatType::kConsumerId, context);
  }

  // When the tracer began.
  int64_t start_ = 1;
  tensorflow::profiler::XSpace space_;
  XPlaneBuilder plane_;
};

TEST_F(ThunkEventsTest, AnOpEndsWhereItsEndWasRecorded) {
  AddOp(1, "dot", 10, 20, 100);
  AddEnd(1, "dot", 19, 100);
  AddOp(1, "all-reduce", 20, 21, 101);
  AddEnd(2, "all-reduce", 50, 101);
  const auto events = ReadThunkEvents(space_, /*origin=*/0);
  ASSERT_EQ(events.size(), 2);
  EXPECT_EQ(events[0].op, "dot");
  EXPECT_EQ(events[0].run_id, 8);
  EXPECT_EQ(events[0].device, 2);
  EXPECT_EQ(events[0].begin_ps, 10'000);
  EXPECT_EQ(events[0].end_ps, 19'000);
  EXPECT_EQ(events[1].op, "all-reduce");
  EXPECT_EQ(events[1].end_ps, 50'000);
}

TEST_F(ThunkEventsTest, AnOpWithoutAnEndTakesWhatItsThreadTook) {
  AddOp(1, "dot", 10, 20, 100);
  const auto events = ReadThunkEvents(space_, /*origin=*/0);
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0].end_ps, 20'000);
}

TEST_F(ThunkEventsTest, TimesSince1970FitIn) {
  constexpr int64_t kNow = 1'795'716'179'000'000'000;
  start_ = kNow;
  AddOp(1, "dot", kNow + 30, kNow + 40, 100);
  AddEnd(1, "dot", kNow + 39, 100);
  const auto events = ReadThunkEvents(space_, kNow - 10);
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0].begin_ps, 40'000);
  EXPECT_EQ(events[0].end_ps, 49'000);
}

TEST_F(ThunkEventsTest, OtherEventsAndOpsWithoutARunAreNotThere) {
  AddEvent(1, "FunctionRun", 10, 20);
  AddOpWithoutRun(1, "dot", 10, 20);
  EXPECT_TRUE(ReadThunkEvents(space_, /*origin=*/0).empty());
}

TEST_F(ThunkEventsTest, AnOpBelongsToTheInnermostScopeOfItsThread) {
  // As TensorFlow's tracer has them: what ended first comes first.
  AddOpWithoutRun(1, "first", 10, 20);
  AddOpWithoutRun(1, "inner", 31, 35);
  AddScope(1, 30, 40, /*run_id=*/6, /*device=*/1);
  AddOpWithoutRun(1, "last", 50, 60);
  AddScope(1, 5, 60, /*run_id=*/5, /*device=*/0);
  AddOpWithoutRun(1, "outside", 70, 80);
  AddOpWithoutRun(2, "of another thread", 31, 35);
  const auto events = ReadThunkEvents(space_, /*origin=*/0);
  ASSERT_EQ(events.size(), 3);
  for (int i : {0, 2}) {
    EXPECT_EQ(events[i].run_id, 5);
    EXPECT_EQ(events[i].device, 0);
  }
  EXPECT_EQ(events[1].op, "inner");
  EXPECT_EQ(events[1].run_id, 6);
  EXPECT_EQ(events[1].device, 1);
}

}  // namespace
}  // namespace tf_tpu_ext
