#include "cc/runtime/target_programs.h"

#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

TargetProgram Named(std::string name) {
  TargetProgram program;
  program.name = std::move(name);
  return program;
}

TEST(TargetProgramsTest, InTheirOrderAndThenNothing) {
  TargetPrograms programs;
  programs.Add(Named("first"));
  programs.Add(Named("second"));
  programs.Wake();
  EXPECT_EQ(programs.added(), 2);
  EXPECT_EQ(programs.Take()->name, "first");
  EXPECT_EQ(programs.Take()->name, "second");
  EXPECT_FALSE(programs.Take().has_value());
  EXPECT_EQ(programs.added(), 2);
}

TEST(TargetProgramsTest, TakeWaits) {
  TargetPrograms programs;
  std::optional<TargetProgram> taken;
  std::thread thread([&] { taken = programs.Take(); });
  programs.Add(Named("late"));
  thread.join();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->name, "late");
}

}  // namespace
}  // namespace tf_tpu_ext
