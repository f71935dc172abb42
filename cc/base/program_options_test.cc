#include "cc/base/program_options.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

TEST(ProgramOptionsTest, TextSetsEverySwitch) {
  for (const auto& [name, value] : kProgramSwitches) {
    ProgramOptions options;
    options.*value = !(options.*value);
    ProgramOptions read;
    ASSERT_TRUE(ApplyProgramOptions(ProgramOptionsText(options), &read).ok());
    for (const auto& [other_name, other] : kProgramSwitches) {
      EXPECT_EQ(read.*other, options.*other) << name << " " << other_name;
    }
  }
}

TEST(ProgramOptionsTest, WhatIsNotNamedStays) {
  ProgramOptions options;
  options.share_updates = false;
  ASSERT_TRUE(ApplyProgramOptions("stack_replicas=0;launch_from_host=1", &options).ok());
  EXPECT_FALSE(options.share_updates);
  EXPECT_FALSE(options.stack_replicas);
  EXPECT_TRUE(options.launch_from_host);
  ASSERT_TRUE(ApplyProgramOptions("", &options).ok());
  EXPECT_FALSE(options.stack_replicas);
}

TEST(ProgramOptionsTest, RefusesWhatItDoesNotKnow) {
  ProgramOptions options;
  for (const char* text : {"speed=1", "stack_replicas", "stack_replicas=2", "=1"}) {
    const absl::Status status = ApplyProgramOptions(text, &options);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
  }
}

}  // namespace
}  // namespace tf_tpu_ext
