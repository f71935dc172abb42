#include "cc/profile/recorder.h"

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

TEST(ProfileRecorderTest, RecordsBetweenStartAndStop) {
  ProfileRecorder recorder;
  recorder.Add(RecordedRun());
  EXPECT_FALSE(recorder.Now().has_value());
  recorder.Start();
  EXPECT_TRUE(recorder.active());
  EXPECT_TRUE(recorder.Now().has_value());
  recorder.Add(RecordedRun());
  recorder.Add(RecordedWait());
  recorder.Stop();
  recorder.Add(RecordedRun());
  const Recording recording = recorder.Take();
  EXPECT_EQ(recording.runs.size(), 1);
  EXPECT_EQ(recording.waits.size(), 1);
  EXPECT_EQ(recording.dropped, 0);
  EXPECT_TRUE(recorder.Take().runs.empty());
}

TEST(ProfileRecorderTest, AWaitIsOneIfItBeginsAndEndsInAProfile) {
  ProfileRecorder recorder;
  ProfiledWait early(&recorder, "early", RunId(1), Core(2));
  EXPECT_EQ(early.wait(), nullptr);
  recorder.Start();
  early.End();
  ProfiledWait wait(&recorder, "infeed", RunId(1), Core(2));
  ASSERT_NE(wait.wait(), nullptr);
  wait.wait()->bytes = 5;
  ProfiledWait late(&recorder, "late", RunId(1), Core(2));
  ProfiledWait copy = wait;
  copy.End();
  copy.End();
  recorder.Stop();
  late.End();
  const Recording recording = recorder.Take();
  ASSERT_EQ(recording.waits.size(), 1);
  EXPECT_EQ(recording.waits[0].name, "infeed");
  EXPECT_EQ(recording.waits[0].core, Core(2));
  EXPECT_EQ(recording.waits[0].bytes, 5);
  EXPECT_TRUE(recording.waits[0].in_run);
  EXPECT_GE(recording.waits[0].end, recording.waits[0].begin);
}

TEST(ProfileRecorderTest, ThereMayBeNone) {
  EXPECT_FALSE(NowIfRecording(nullptr).has_value());
  ProfiledWait wait(nullptr, "infeed", RunId(1), Core(2));
  EXPECT_EQ(wait.wait(), nullptr);
  wait.End();
}

}  // namespace
}  // namespace tf_tpu_ext
