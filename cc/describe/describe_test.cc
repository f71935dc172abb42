#include "cc/describe/describe.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

TEST(DescribeTest, WhatHasNotEndedHasNoTime) {
  TimedLaunch launch;
  launch.program_id = 3;
  launch.begin = absl::UnixEpoch() + absl::Milliseconds(1500);
  launch.end = absl::InfinitePast();
  launch.runs.push_back({{Core(0), Core(2)}, launch.begin, absl::InfinitePast()});
  EXPECT_EQ(Describe(launch).Text(),
            R"({"program_id":3,"run_id":0,"runs":[{"cores":[0,2],"begin":1.5,"end":null}],)"
            R"("begin":1.5,"end":null})");
}

TEST(DescribeTest, NotesAreThoseOfTheirProgram) {
  TargetProgram program;
  program.name = "step";
  program.notes.push_back({"emulated", "float64", 2, "Cast", "train.py:3"});
  EXPECT_EQ(Describe(program).Text(),
            R"({"program_id":0,"name":"step","argument_shapes":"","num_replicas":1,)"
            R"("num_cores_per_replica":1,"notes":[{"kind":"emulated","what":"float64","count":2,)"
            R"("op":"Cast","source":"train.py:3"}],"not_asked":"","error":""})");
}

TEST(DescribeTest, ListsKeepTheirOrder) {
  const auto described = DescribeAll(std::vector<CoreWaits>{{Core(1)}, {Core(0)}});
  ASSERT_EQ(described.size(), 2);
  EXPECT_EQ(described[0].Text(),
            R"({"core":1,"waited_seconds":0,"times_last":0,"kept_waiting_seconds":0})");
}

}  // namespace
}  // namespace tf_tpu_ext
