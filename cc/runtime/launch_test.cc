#include "cc/runtime/launch.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "cc/base/core_threads.h"
#include "cc/profile/recorder.h"
#include "cc/runtime/collective_table.h"
#include "cc/runtime/core_order.h"
#include "cc/runtime/launch_fakes.h"
#include "cc/runtime/launch_table.h"
#include "gtest/gtest.h"
#include "xla/tsl/platform/status.h"

namespace tf_tpu_ext {
namespace {

constexpr LaunchId kLaunch(7);
constexpr int64_t kStep = 3;

// How one core's op ended.
struct End {
  absl::Status status;
  Outputs outputs;
};
using Ends = std::shared_ptr<std::optional<End>>;

// A program with a replica on each of the cores. Without cores, it runs wherever it is sent.
CompiledProgram OnCores(const std::vector<int>& cores) {
  CompiledProgram compiled;
  compiled.name = "train";
  compiled.num_replicas = std::max(1, static_cast<int>(cores.size()));
  compiled.cores = ByNumber<Slot, Core>(ToNumbers<Core>(cores));
  return compiled;
}

class LaunchTest : public ::testing::Test {
 protected:
  LaunchTest() : table_(Services()) {}

  LaunchServices Services() {
    LaunchServices services;
    services.collectives = &collectives_;
    services.wait_monitor = &monitor_;
    services.core_order = &order_;
    services.compute_pool = &pool_;
    services.transfers = &transfers_;
    services.recorder = &recorder_;
    services.run_long = [this](std::function<void()> work) {
      long_work_.push_back(std::move(work));
    };
    services.run_locking = [](const std::function<void()>& work) { work(); };
    return services;
  }

  // Adds a core. Sets launch_ to the launch that it joined.
  Ends Arrive(int core, const std::shared_ptr<Program>& program, StepArguments arguments = {},
              LaunchId launch_id = kLaunch) {
    auto end = std::make_shared<std::optional<End>>();
    CoreArrival arrival;
    arrival.core = Core(core);
    arrival.program = program;
    arrival.step_id = kStep;
    arrival.arguments = std::move(arguments);
    arrival.done = [this, core, end](absl::Status status, Outputs outputs) {
      order_of_ends_.push_back(core);
      *end = End{std::move(status), std::move(outputs)};
    };
    refusal_ = table_.Arrive(launch_id, std::move(arrival),
                             [this](const std::shared_ptr<Launch>& launch) { launch_ = launch; });
    return end;
  }

  // A core waits for another one in a collective of the first launch.
  void WaitInCollective(FakeProgram::Run& run) {
    CollectiveParticipant participant;
    participant.rank = Rank(run.core.replica.value());
    participant.done = [&run](const absl::Status& status) { run.Fail(status); };
    collectives_.Arrive({run.core.run_id, 1, true, {Core(0), Core(1)}}, 2, "all-reduce",
                        std::move(participant), [](auto) { return absl::OkStatus(); });
  }

  FakePool pool_;
  FakeMonitor monitor_;
  FakeTransfers transfers_;
  CollectiveTable collectives_;
  CoreOrder order_;
  ProfileRecorder recorder_;
  std::vector<std::function<void()>> long_work_;
  LaunchTable table_;
  absl::Status refusal_;
  std::shared_ptr<Launch> launch_;
  std::vector<int> order_of_ends_;
};

TEST_F(LaunchTest, ProgressIsOfTheOldestThatGoesOn) {
  EXPECT_EQ(table_.Progress(absl::ZeroDuration()).ended, 0);
  EXPECT_EQ(table_.Progress(absl::ZeroDuration()).program, "");
  auto program = std::make_shared<FakeProgram>(OnCores({0, 1}));
  Arrive(1, program);
  LaunchProgress progress = table_.Progress(absl::ZeroDuration());
  EXPECT_EQ(progress.program, "train");
  EXPECT_EQ(progress.waits, "cores [1] are ready and wait for cores [0].");
  Arrive(0, program);
  progress = table_.Progress(absl::ZeroDuration());
  EXPECT_EQ(progress.program, "train");
  EXPECT_EQ(progress.waits, "");
  EXPECT_EQ(progress.ended, 0);
  WaitInCollective(program->OfSlot(Slot(0)));
  // The next launch is newer.
  const RunId first = progress.run_id;
  Arrive(0, program, {}, LaunchId(8));
  progress = table_.Progress(absl::ZeroDuration());
  EXPECT_EQ(progress.run_id, first);
  EXPECT_TRUE(absl::StrContains(progress.waits, "cores [0] wait in all-reduce")) << progress.waits;
  EXPECT_EQ(table_.Progress(absl::Hours(1)).waits, "");
  program->OfSlot(Slot(1)).Fail(absl::InternalError("lost"));
  progress = table_.Progress(absl::ZeroDuration());
  EXPECT_EQ(progress.ended, 1);
  EXPECT_GT(progress.run_id, first);
  // A launch that never ran has not ended.
  table_.Reject(LaunchId(8), absl::InternalError("lost"));
  EXPECT_EQ(table_.Progress(absl::ZeroDuration()).ended, 1);
  EXPECT_EQ(table_.Progress(absl::ZeroDuration()).program, "");
}

TEST_F(LaunchTest, StartsWhenTheLastCoreHasCome) {
  auto program = std::make_shared<FakeProgram>(OnCores({4, 5}));
  const Ends fifth = Arrive(5, program, {{FloatTensor({5})}});
  EXPECT_TRUE(program->runs.empty());
  const Ends fourth = Arrive(4, program, {{FloatTensor({4})}});
  ASSERT_EQ(program->runs.size(), 2);
  for (FakeProgram::Run& run : program->runs) {
    EXPECT_EQ(run.core.launch_id, kLaunch);
    EXPECT_EQ(run.core.core, Core(run.core.slot.value() + 4));
    EXPECT_EQ(run.core.replica, Replica(run.core.slot.value()));
    EXPECT_EQ(FloatsOf(run.argument(0)), std::vector<float>{1.0f * run.core.core.value()});
  }
  EXPECT_EQ(pool_.NumRuns(), 2);
  program->OfSlot(Slot(0)).End({FloatTensor({10})});
  EXPECT_FALSE(fourth->has_value());
  program->OfSlot(Slot(1)).End({FloatTensor({11})});
  EXPECT_EQ(pool_.NumRuns(), 0);
  ASSERT_TRUE(fourth->has_value() && fifth->has_value());
  EXPECT_TRUE((*fourth)->status.ok()) << (*fourth)->status;
  EXPECT_EQ(FloatsOf((*fourth)->outputs[OutputNumber(0)]), std::vector<float>{10});
  EXPECT_EQ(FloatsOf((*fifth)->outputs[OutputNumber(0)]), std::vector<float>{11});
  EXPECT_EQ(order_of_ends_, (std::vector<int>{4, 5}));
  EXPECT_EQ(transfers_.log, std::vector<std::string>{"finish 7"});
  EXPECT_EQ(monitor_.num_waits(), 0);
}

TEST_F(LaunchTest, InAProfileStartsWhenTheOpHasReturned) {
  auto program = std::make_shared<FakeProgram>(OnCores({0}));
  CoreThreads threads(CoreThreads::Options{/*usual_threads=*/1, /*max_threads=*/1});
  for (const bool profiled : {false, true}) {
    if (profiled) recorder_.Start();
    absl::Notification came;
    threads.Schedule([&] {
      Arrive(0, program);
      EXPECT_EQ(program->runs.size(), profiled ? 0 : 1);
      // This comes after the work that the op has scheduled.
      CoreThreads::OfCaller()->Schedule([&] { came.Notify(); });
    });
    came.WaitForNotification();
    ASSERT_EQ(program->runs.size(), 1);
    program->OfSlot(Slot(0)).End({FloatTensor({1})});
    program->runs.clear();
  }
}

TEST_F(LaunchTest, ACoreThatComesAgainBeginsTheNextRound) {
  auto program = std::make_shared<FakeProgram>(OnCores({0, 1}));
  const Ends first = Arrive(0, program);
  const std::shared_ptr<Launch> first_round = launch_;
  const Ends second = Arrive(0, program);
  EXPECT_NE(launch_, first_round);
  // The other core catches up, starting with the older iteration.
  Arrive(1, program);
  EXPECT_EQ(launch_, first_round);
  ASSERT_EQ(program->runs.size(), 2);
  const RunId run_id = program->runs[0].core.run_id;
  EXPECT_EQ(program->runs[1].core.run_id, run_id);
  Arrive(1, program);
  ASSERT_EQ(program->runs.size(), 4);
  EXPECT_NE(program->runs[2].core.run_id, run_id);
  for (FakeProgram::Run& run : program->runs) run.End({});
  EXPECT_TRUE(first->has_value() && second->has_value());
}

TEST_F(LaunchTest, ReplicasRunTheProgramsTheyBring) {
  auto program = std::make_shared<FakeProgram>(OnCores({0, 1}));
  auto other = std::make_shared<FakeProgram>(OnCores({0, 1}));
  Arrive(1, other);
  Arrive(0, program);
  ASSERT_EQ(program->runs.size(), 1);
  ASSERT_EQ(other->runs.size(), 1);
  EXPECT_EQ(program->runs[0].core.core, Core(0));
  EXPECT_EQ(other->runs[0].core.core, Core(1));
  program->runs[0].End({});
  other->runs[0].End({});
}

TEST_F(LaunchTest, AProgramOfOtherCoresIsRefused) {
  auto program = std::make_shared<FakeProgram>(OnCores({0, 1}));
  const Ends waiting = Arrive(0, program);
  launch_ = nullptr;
  // Its core is in slot 3, which the launch does not have.
  const Ends end = Arrive(3, std::make_shared<FakeProgram>(OnCores({0, 1, 2, 3})));
  EXPECT_EQ(refusal_.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(absl::StrContains(refusal_.message(), "runs on cores [0, 1, 2, 3]")) << refusal_;
  EXPECT_TRUE(absl::StrContains(refusal_.message(), "for cores [0, 1]")) << refusal_;
  EXPECT_EQ(launch_, nullptr);
  EXPECT_FALSE(end->has_value());
  EXPECT_FALSE(waiting->has_value());
  // The launch continues without it.
  Arrive(1, program);
  ASSERT_EQ(program->runs.size(), 2);
  for (FakeProgram::Run& run : program->runs) run.End({});
  EXPECT_TRUE((*waiting)->status.ok());
}

TEST_F(LaunchTest, ACoreThatTheProgramDoesNotHaveIsRefused) {
  Arrive(2, std::make_shared<FakeProgram>(OnCores({0, 1})));
  EXPECT_EQ(refusal_.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(launch_, nullptr);
}

TEST_F(LaunchTest, AProgramWithMoreCoresThanPlacesIsRefused) {
  CompiledProgram compiled = OnCores({0, 1, 2});
  compiled.num_replicas = 2;
  Arrive(2, std::make_shared<FakeProgram>(compiled));
  EXPECT_EQ(refusal_.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(absl::StrContains(refusal_.message(), "core 2 in place 2 of 2")) << refusal_;
  EXPECT_EQ(launch_, nullptr);
}

TEST_F(LaunchTest, AFailureBeforeTheStartEndsWhoHasCome) {
  CompiledProgram compiled = OnCores({0, 1});
  compiled.takes.infeed = true;
  auto program = std::make_shared<FakeProgram>(compiled);
  const Ends end = Arrive(1, program);
  launch_->Fail(absl::AbortedError("first"));
  launch_->Fail(absl::AbortedError("second"));
  ASSERT_TRUE(end->has_value());
  EXPECT_EQ((*end)->status, absl::AbortedError("first"));
  EXPECT_EQ(transfers_.log,
            (std::vector<std::string>{"finish 7", "drop of cores 0,1 in step 3: first"}));
  EXPECT_EQ(monitor_.num_waits(), 0);
  // The launch is forgotten, so a core that arrives now waits for another iteration.
  const Ends late = Arrive(0, program);
  EXPECT_TRUE(program->runs.empty());
  EXPECT_FALSE(late->has_value());
}

TEST_F(LaunchTest, OneOpReportsTheErrorTheOthersRepeatIt) {
  auto program = std::make_shared<FakeProgram>(OnCores({0, 1, 2}));
  const Ends second = Arrive(1, program);
  const Ends third = Arrive(2, program);
  table_.Reject(LaunchId(8), absl::InternalError("another launch"));
  EXPECT_FALSE(second->has_value());
  table_.Reject(kLaunch, absl::NotFoundError("variable"));
  ASSERT_TRUE(second->has_value() && third->has_value());
  EXPECT_EQ((*second)->status, absl::NotFoundError("variable"));
  EXPECT_FALSE(tsl::StatusGroup::IsDerived((*second)->status));
  EXPECT_TRUE(tsl::StatusGroup::IsDerived((*third)->status));
  EXPECT_EQ((*third)->status.code(), absl::StatusCode::kNotFound);
}

TEST_F(LaunchTest, ACoreThatFailsStopsTheOthers) {
  auto program = std::make_shared<FakeProgram>(OnCores({0, 1}));
  const Ends first = Arrive(0, program);
  Arrive(1, program);
  ASSERT_EQ(program->runs.size(), 2);
  WaitInCollective(program->OfSlot(Slot(0)));
  EXPECT_FALSE(first->has_value());
  program->OfSlot(Slot(1)).Fail(absl::ResourceExhaustedError("no memory"));
  ASSERT_TRUE(first->has_value());
  const absl::Status expected =
      absl::ResourceExhaustedError("Replica 1 of TPU program train failed on core 1: no memory");
  EXPECT_EQ((*first)->status, expected);
  EXPECT_TRUE((*first)->outputs.empty());
  EXPECT_EQ(transfers_.log,
            (std::vector<std::string>{absl::StrCat("abort 7: ", expected.message()), "finish 7"}));
}

TEST_F(LaunchTest, ARunningLaunchFailsWhenItsCoresHaveStopped) {
  auto program = std::make_shared<FakeProgram>(OnCores({0, 1}));
  const Ends end = Arrive(0, program);
  Arrive(1, program);
  launch_->Fail(absl::CancelledError("cancelled"));
  EXPECT_FALSE(end->has_value());
  program->runs[0].End({FloatTensor({1})});
  EXPECT_FALSE(end->has_value());
  // Too late to have an effect.
  program->runs[1].Fail(absl::InternalError("second"));
  ASSERT_TRUE(end->has_value());
  EXPECT_EQ((*end)->status, absl::CancelledError("cancelled"));
  EXPECT_TRUE((*end)->outputs.empty());
  launch_->Fail(absl::InternalError("after the end"));
  EXPECT_EQ(transfers_.log, (std::vector<std::string>{"abort 7: cancelled", "finish 7"}));
  // Nothing is left of the run: a run with its number can fail again only if it was finished.
  std::optional<absl::Status> met;
  CollectiveParticipant alone;
  alone.done = [&met](absl::Status status) { met = std::move(status); };
  collectives_.Arrive({program->runs[0].core.run_id, 1, true, {Core(0)}}, 1, "all-reduce",
                      std::move(alone), [](auto) { return absl::OkStatus(); });
  EXPECT_EQ(met, absl::OkStatus());
}

TEST_F(LaunchTest, ReportsWhoIsMissing) {
  auto program = std::make_shared<FakeProgram>(OnCores({4, 5, 6}));
  const Ends end = Arrive(5, program);
  monitor_.Expire();
  ASSERT_TRUE(end->has_value());
  EXPECT_EQ((*end)->status,
            absl::DeadlineExceededError(
                "TPU program train, launch 7, waited longer than the limit of 1m: cores [5] are "
                "ready and wait for cores [4, 6]. Find out why the missing ones do not come, or "
                "raise the limit with tf_tpu_ext.configure(wait_limit_seconds=...)."));
}

TEST_F(LaunchTest, ReportsWhoWaitsInACollective) {
  auto program = std::make_shared<FakeProgram>(OnCores({0, 1}));
  const Ends end = Arrive(0, program);
  Arrive(1, program);
  WaitInCollective(program->OfSlot(Slot(0)));
  // Only the launch has waited that long, not the meeting: the core has been computing.
  monitor_.Expire();
  EXPECT_EQ(monitor_.num_waits(), 1);
  monitor_.Expire(absl::ZeroDuration());
  EXPECT_FALSE(end->has_value());
  program->OfSlot(Slot(1)).End({});
  ASSERT_TRUE(end->has_value());
  EXPECT_EQ((*end)->status,
            absl::DeadlineExceededError(
                "TPU program train, launch 7, waited longer than the limit of 0: cores [0] wait in "
                "all-reduce for the other cores of [0, 1];  Find out why the missing ones do not "
                "come, or raise the limit with tf_tpu_ext.configure(wait_limit_seconds=...)."));
}

TEST_F(LaunchTest, ALongRunIsNoWait) {
  auto program = std::make_shared<FakeProgram>(OnCores({}));
  const Ends end = Arrive(3, program);
  monitor_.Expire();
  monitor_.Expire();
  EXPECT_FALSE(end->has_value());
  EXPECT_EQ(monitor_.num_waits(), 1);
  program->runs[0].End({});
  EXPECT_TRUE((*end)->status.ok());
  EXPECT_EQ(monitor_.num_waits(), 0);
}

StepArguments Updates() {
  StepArguments arguments;
  arguments.updates_variables = true;
  return arguments;
}

TEST_F(LaunchTest, UpdatesOfOneCoreFollowEachOther) {
  auto program = std::make_shared<FakeProgram>(OnCores({}));
  const Ends first = Arrive(0, program, Updates(), LaunchId(1));
  const Ends second = Arrive(0, program, Updates(), LaunchId(2));
  const Ends reader = Arrive(0, program, {}, LaunchId(3));
  const Ends elsewhere = Arrive(1, program, Updates(), LaunchId(4));
  ASSERT_EQ(program->runs.size(), 3);  // all but the second
  program->runs[1].End({});
  program->runs[2].End({});
  EXPECT_TRUE(reader->has_value() && elsewhere->has_value());
  EXPECT_EQ(program->runs.size(), 3);
  program->runs[0].End({});
  EXPECT_TRUE(first->has_value());
  ASSERT_EQ(program->runs.size(), 4);
  EXPECT_EQ(program->runs[3].core.launch_id, LaunchId(2));
  program->runs[3].End({});
  EXPECT_TRUE(second->has_value());
}

TEST_F(LaunchTest, ALaunchThatWaitsForItsTurnCanFail) {
  auto program = std::make_shared<FakeProgram>(OnCores({}));
  Arrive(0, program, Updates(), LaunchId(1));
  const Ends second = Arrive(0, program, Updates(), LaunchId(2));
  const Ends third = Arrive(0, program, Updates(), LaunchId(3));
  monitor_.Expire();
  ASSERT_TRUE(second->has_value());
  EXPECT_EQ((*second)->status,
            absl::DeadlineExceededError(
                "TPU program train, launch 2, waited longer than the limit of 1m: cores [0] are "
                "held by another program or op that updates variables, and has not ended. Look for "
                "what it waits for, or raise the limit with "
                "tf_tpu_ext.configure(wait_limit_seconds=...)."));
  EXPECT_TRUE(third->has_value());
  const Ends fourth = Arrive(0, program, Updates(), LaunchId(4));
  ASSERT_EQ(program->runs.size(), 1);
  program->runs[0].End({});
  // The launches that failed gave up their places.
  ASSERT_EQ(program->runs.size(), 2);
  EXPECT_EQ(program->runs[1].core.launch_id, LaunchId(4));
  program->runs[1].End({});
  EXPECT_TRUE((*fourth)->status.ok());
}

TEST_F(LaunchTest, KnowsWhetherAnExpectedLaunchHasBegun) {
  auto program = std::make_shared<FakeProgram>(OnCores({0, 1}));
  table_.Expect(kLaunch);
  EXPECT_FALSE(table_.StopExpecting(kLaunch));
  table_.Expect(kLaunch);
  Arrive(0, program);
  EXPECT_TRUE(table_.StopExpecting(kLaunch));
  EXPECT_FALSE(table_.StopExpecting(kLaunch));
}

}  // namespace
}  // namespace tf_tpu_ext
