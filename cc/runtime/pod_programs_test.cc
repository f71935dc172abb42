#include "cc/runtime/pod_programs.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/base/process.h"
#include "cc/pods/pod_testing.h"
#include "cc/runtime/launch_fakes.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

std::shared_ptr<Program> SomeProgram() { return std::make_shared<FakeProgram>(CompiledProgram()); }

class PodProgramsTest : public ::testing::Test {
 protected:
  const std::shared_ptr<const Pod> pod_ = std::make_shared<const Pod>(MakePod(3, 2, 1));
  PodPrograms programs_;
};

TEST_F(PodProgramsTest, FindsEachByItsName) {
  const std::shared_ptr<Program> first = SomeProgram(), second = SomeProgram();
  programs_.Note("first", first, pod_);
  programs_.Note("second", second, std::make_shared<const Pod>(MakePod(2, 4, 0)));
  const absl::StatusOr<FoundProgram> found = programs_.Find("first");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->program, first);
  EXPECT_EQ(found->pod, pod_);
  const absl::StatusOr<FoundProgram> other = programs_.Find("second");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->program, second);
  EXPECT_EQ(other->pod->shape.hosts, 2);
}

TEST_F(PodProgramsTest, AnUnknownNameIsNotFound) {
  programs_.Note("first", SomeProgram(), pod_);
  const absl::Status status = programs_.Find("second").status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "second")) << status;
}

TEST_F(PodProgramsTest, AFailedCompilationIsToldWithTheHost) {
  programs_.Note("train", absl::UnimplementedError("no kernel for op Where"), pod_);
  EXPECT_EQ(programs_.Find("train").status(),
            absl::UnimplementedError("Compilation failure on /job:worker/replica:0/task:1: no "
                                     "kernel for op Where"));
}

TEST_F(PodProgramsTest, TheLastCompilationCounts) {
  const std::shared_ptr<Program> program = SomeProgram();
  programs_.Note("train", absl::UnimplementedError("no kernel for op Where"), pod_);
  programs_.Note("train", program, pod_);
  ASSERT_TRUE(programs_.Find("train").ok());
  EXPECT_EQ(programs_.Find("train")->program, program);
  programs_.Note("train", absl::InternalError("out of order"), pod_);
  EXPECT_TRUE(absl::IsInternal(programs_.Find("train").status()));
}

TEST_F(PodProgramsTest, AProgramEndsWithTheLastWhoHasIt) {
  std::shared_ptr<Program> program = SomeProgram();
  programs_.Note("train", program, pod_);
  absl::StatusOr<FoundProgram> found = programs_.Find("train");
  program = nullptr;
  EXPECT_TRUE(programs_.Find("train").ok());
  found = absl::CancelledError("dropped");
  const absl::Status status = programs_.Find("train").status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "train")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), TaskOfHost(1))) << status;
}

TEST_F(PodProgramsTest, AProgramWithoutCoresHereIsNotFound) {
  programs_.Note("train", std::shared_ptr<Program>(), pod_);
  const absl::Status status = programs_.Find("train").status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "no core on /job:worker/replica:0/task:1"))
      << status;
}

// Functions come and go during the life of the process.
TEST_F(PodProgramsTest, ThoseThatHaveEndedMakeRoom) {
  std::vector<std::shared_ptr<Program>> kept;
  for (int i = 0; i < 5000; ++i) {
    const std::shared_ptr<Program> program = SomeProgram();
    if (i % 3 == 0) kept.push_back(program);
    programs_.Note(absl::StrCat("program ", i), program, pod_);
    ASSERT_TRUE(programs_.Find(absl::StrCat("program ", i)).ok());
  }
  for (int i = 0; i < 5000; ++i) {
    const absl::StatusOr<FoundProgram> found = programs_.Find(absl::StrCat("program ", i));
    if (i % 3 == 0) {
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(found->program, kept[i / 3]);
    } else {
      EXPECT_TRUE(absl::IsNotFound(found.status())) << found.status();
    }
  }
  // It forgets the programs that it no longer keeps.
  EXPECT_TRUE(absl::StrContains(programs_.Find("program 1").status().message(), "not compiled"));
}

TEST_F(PodProgramsTest, TheLastFailureIsKnownHoweverManyThereAre) {
  for (int i = 0; i < 5000; ++i) {
    const std::string name = absl::StrCat("program ", i);
    programs_.Note(name, absl::UnimplementedError("no kernel for op Where"), pod_);
    ASSERT_TRUE(absl::IsUnimplemented(programs_.Find(name).status())) << name;
  }
}

TEST(FindProgramTest, LooksWhereTheKeyPoints) {
  // The kernels' tests have installed this process. No other test uses its programs.
  const Process& before = Process::Get();
  ProgramCache cache([] { return ProgramLimits(); });
  PodPrograms pod_programs;
  Process process = before;
  process.programs = &cache;
  process.pod_programs = &pod_programs;
  Process::Install(&process);

  int64_t id = 0;
  const auto compiled = cache.GetOrCompile("train", [&](int64_t given, CompilationRecord*) {
    id = given;
    return absl::StatusOr<std::shared_ptr<Program>>(SomeProgram());
  });
  const std::shared_ptr<Program> of_pod = SomeProgram();
  const auto pod = std::make_shared<const Pod>(MakePod(2, 1, 0));
  pod_programs.Note("train of a pod", of_pod, pod);

  ProgramKey key;
  key.program_id = id;
  absl::StatusOr<FoundProgram> found = FindProgram(key);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->program, *compiled);
  EXPECT_EQ(found->pod, nullptr);
  // In this case, the number belongs to another host.
  key.pod_program = "train of a pod";
  found = FindProgram(key);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->program, of_pod);
  EXPECT_EQ(found->pod, pod);
  key = ProgramKey();
  key.program_id = id + 1;
  EXPECT_TRUE(absl::IsNotFound(FindProgram(key).status()));

  Process::Install(&before);
}

}  // namespace
}  // namespace tf_tpu_ext
