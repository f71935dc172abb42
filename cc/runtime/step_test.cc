// Tests the ways to run a step with programs that end when the test says so.
#include "cc/runtime/step.h"

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "cc/runtime/batched_replicas.h"
#include "cc/runtime/collective_table.h"
#include "cc/runtime/launch_fakes.h"
#include "cc/transfer/host_calls.h"
#include "cc/transfer/host_function_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;
using tensorflow::Var;

constexpr LaunchId kStepLaunch(7);
constexpr ArgumentNumber kFirst(0);
// More than the minimum for which a run in place is worth its locks.
constexpr int kManyElements = 1 << 15;

CompiledProgram Replicas(int num_replicas) {
  CompiledProgram compiled;
  compiled.name = "train";
  compiled.num_replicas = num_replicas;
  for (int core = 0; core < num_replicas; ++core) compiled.cores.Add(Core(core));
  return compiled;
}

// The only argument of a single-core step: a variable.
class OneVariable {
 public:
  explicit OneVariable(const Tensor& value) : variable_(new Var(tensorflow::DT_FLOAT)) {
    *variable_->tensor() = value;
    variable_->is_initialized = true;
  }

  Var& operator*() const { return *variable_; }

  StepArguments Arguments() const {
    auto variables = std::make_shared<ArgumentVariables>();
    variable_->Ref();
    variables->Add(tensorflow::core::RefCountPtr<Var>(variable_.get()));
    // The value that the op has seen does not matter, because the step reads the variable when it
    // starts.
    return {{Tensor()}, std::move(variables), /*updates_variables=*/true};
  }

 private:
  tensorflow::core::RefCountPtr<Var> variable_;
};

class StepTest : public ::testing::Test {
 protected:
  // A step whose slot i has arguments[i].
  std::shared_ptr<Step> Make(std::shared_ptr<Program> program,
                             std::vector<StepArguments> arguments) {
    StepCores cores;
    for (StepArguments& each : arguments) {
      StepCore core;
      core.context.launch_id = kStepLaunch;
      core.context.run_id = RunId(1);
      core.context.core = Core(cores.size());
      core.context.slot = Slot(cores.size());
      core.context.replica = program->compiled().ReplicaOf(core.context.slot);
      core.program = program;
      core.arguments = std::move(each);
      cores.Add(std::move(core));
    }
    LaunchServices services;
    services.collectives = &collectives_;
    services.wait_monitor = &monitor_;
    services.compute_pool = &pool_;
    services.host_threads = &host_threads_;
    services.transfers = &transfers_;
    services.first_launches = &first_launches_;
    services.run_long = [this](std::function<void()> work) {
      long_work_.push_back(std::move(work));
    };
    services.run_locking = [this](const std::function<void()>& work) {
      ++locked_;
      work();
    };
    return Step::Create(services, kStepLaunch, std::move(program), std::move(cores),
                        /*links=*/nullptr,
                        [this](absl::Status status, ByNumber<Slot, Outputs> outputs) {
                          EXPECT_FALSE(status_.has_value()) << "ended twice";
                          status_ = std::move(status);
                          outputs_ = std::move(outputs);
                          if (ended_ != nullptr) ended_->Notify();
                        });
  }

  // Declared first, because its threads use the others.
  CoreThreads host_threads_{CoreThreads::Options{/*usual_threads=*/2, /*max_threads=*/4}};
  FakePool pool_;
  FakeMonitor monitor_;
  FakeTransfers transfers_;
  CollectiveTable collectives_;
  FirstLaunches first_launches_;
  std::vector<std::function<void()>> long_work_;
  int locked_ = 0;
  // If set, notified by steps that end on another thread.
  absl::Notification* ended_ = nullptr;
  std::optional<absl::Status> status_;
  // An output of a slot.
  const Tensor& OutputOf(int slot, int output) const {
    return outputs_[Slot(slot)][OutputNumber(output)];
  }
  ByNumber<Slot, Outputs> outputs_;
};

TEST_F(StepTest, EachSlotRunsForItself) {
  auto program = std::make_shared<FakeProgram>(Replicas(3));
  const auto step =
      Make(program, {{{FloatTensor({0})}}, {{FloatTensor({1})}}, {{FloatTensor({2})}}});
  step->Start();
  ASSERT_EQ(program->runs.size(), 3);
  for (FakeProgram::Run& run : program->runs) {
    EXPECT_EQ(run.core.group_cores, nullptr);
    run.End({FloatTensor({10.0f * FloatsOf(run.argument(0))[0]})});
  }
  ASSERT_EQ(status_, absl::OkStatus());
  ASSERT_EQ(outputs_.size(), 3);
  for (int slot = 0; slot < 3; ++slot) {
    EXPECT_EQ(FloatsOf(OutputOf(slot, 0)), std::vector<float>{10.0f * slot});
  }
}

// Of five replicas that don't wait, two threads run two each. Only the fifth is shared.
TEST_F(StepTest, ThreadsShareOnlyTheRunsThatAreLeftOver) {
  for (const bool waits : {false, true}) {
    CompiledProgram compiled = Replicas(5);
    compiled.waits = waits;
    auto program = std::make_shared<FakeProgram>(compiled);
    status_.reset();
    Make(program, std::vector<StepArguments>(5))->Start();
    ASSERT_EQ(program->runs.size(), 5);
    for (FakeProgram::Run& run : program->runs) {
      EXPECT_EQ(run.options.on_one_thread, !waits && run.core.slot < Slot(4)) << run.core.slot;
      run.End({});
    }
    EXPECT_EQ(status_, absl::OkStatus());
  }
}

TEST_F(StepTest, CoresOfAReplicaShareARun) {
  CompiledProgram compiled = Replicas(4);
  compiled.num_replicas = 2;
  compiled.num_cores_per_replica = 2;
  // The second core passes the replica's first argument, and both cores need output 1.
  compiled.core_slices = {
      {{ArgumentNumber(1)}, {OutputNumber(1)}},
      {{ArgumentNumber(0), ArgumentNumber(2)}, {OutputNumber(0), OutputNumber(1)}}};
  auto program = std::make_shared<FakeProgram>(compiled);
  const auto step = Make(program, {{{FloatTensor({1})}},
                                   {{FloatTensor({0}), FloatTensor({2})}},
                                   {{FloatTensor({11})}},
                                   {{FloatTensor({10}), FloatTensor({12})}}});
  step->Start();
  ASSERT_EQ(program->runs.size(), 2);
  for (FakeProgram::Run& run : program->runs) {
    const float replica = 10.0f * run.core.replica.value();
    ASSERT_EQ(run.arguments.size(), 3);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(FloatsOf(run.argument(i)), std::vector<float>{replica + i});
    }
    run.End({FloatTensor({replica + 5}), FloatTensor({replica + 6})});
  }
  ASSERT_EQ(status_, absl::OkStatus());
  ASSERT_EQ(outputs_.size(), 4);
  EXPECT_EQ(FloatsOf(OutputOf(0, 0)), std::vector<float>{6});
  EXPECT_EQ(FloatsOf(OutputOf(1, 0)), std::vector<float>{5});
  EXPECT_EQ(FloatsOf(OutputOf(1, 1)), std::vector<float>{6});
  EXPECT_EQ(FloatsOf(OutputOf(2, 0)), std::vector<float>{16});
  const std::vector<TimedLaunch> timed = first_launches_.Get();
  ASSERT_EQ(timed.size(), 1);
  ASSERT_EQ(timed[0].runs.size(), 2);
  // The pool starts the second run first.
  EXPECT_EQ(timed[0].runs[0].cores, (std::vector<Core>{Core(2), Core(3)}));
  EXPECT_EQ(timed[0].runs[1].cores, (std::vector<Core>{Core(0), Core(1)}));
  EXPECT_GE(timed[0].end, timed[0].runs[1].end);
  EXPECT_GE(timed[0].runs[1].end, timed[0].begin);
}

// Returns when the test says so. Never deleted, because the op may still be returning from it.
absl::Notification* gate = nullptr;

REGISTER_OP("TpuExtTest>Hold").Input("x: float").Output("y: float").SetIsStateful();

class HoldOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* context) override {
    gate->WaitForNotification();
    context->set_output(0, context->input(0));
  }
};
REGISTER_KERNEL_BUILDER(Name("TpuExtTest>Hold").Device(tensorflow::DEVICE_CPU), HoldOp);

// A single-core program that calls a host function and does not wait for it.
class HostCallStepTest : public StepTest {
 protected:
  HostCallStepTest() {
    gate = new absl::Notification;
    ended_ = new absl::Notification;
    auto functions = HostFunctions::Create(
        {ChainOfOps("hold", {"TpuExtTest>Hold"}), ChainOfOps("check", {"CheckNumerics"})},
        /*num_slots=*/1, &host_threads_, &stats_);
    EXPECT_TRUE(functions.ok()) << functions.status();
    CompiledProgram compiled = Replicas(1);
    compiled.cores.clear();
    program_ = std::make_shared<FakeProgram>(std::move(compiled),
                                             FakeProgram::Parts{*functions, nullptr, nullptr});
  }

  void Call(int function, float value) {
    program_->runs[0].core.host_calls->Start(function, {FloatTensor({value})}, nullptr);
  }

  TransferStats stats_;
  std::shared_ptr<FakeProgram> program_;
};

TEST_F(HostCallStepTest, EndsWhenItsCallsHaveEnded) {
  Make(program_, std::vector<StepArguments>(1))->Start();
  Call(0, 1);
  program_->runs[0].End({FloatTensor({2})});
  EXPECT_FALSE(ended_->HasBeenNotified());
  gate->Notify();
  ended_->WaitForNotification();
  EXPECT_EQ(status_, absl::OkStatus());
  EXPECT_EQ(FloatsOf(OutputOf(0, 0)), std::vector<float>{2});
}

TEST_F(HostCallStepTest, FailsIfACallFailsThatNobodyWaitsFor) {
  Make(program_, std::vector<StepArguments>(1))->Start();
  Call(1, std::numeric_limits<float>::quiet_NaN());
  program_->runs[0].End({FloatTensor({2})});
  ended_->WaitForNotification();
  EXPECT_EQ(status_->code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(
      absl::StartsWith(status_->message(), "Replica 0 of TPU program train failed on core 0: "))
      << *status_;
  EXPECT_TRUE(outputs_[Slot(0)].empty());
}

TEST_F(HostCallStepTest, AFailedStepWaitsForNoCall) {
  const auto step = Make(program_, std::vector<StepArguments>(1));
  step->Start();
  Call(0, 1);
  step->Fail(absl::CancelledError("cancelled"));
  EXPECT_FALSE(ended_->HasBeenNotified());
  program_->runs[0].End({FloatTensor({2})});
  ASSERT_TRUE(ended_->HasBeenNotified());
  EXPECT_EQ(status_, absl::CancelledError("cancelled"));
  gate->Notify();
}

// Four replicas in two groups. Argument and output 0 are mirrored, and argument and output 1 are
// batched.
class GroupStepTest : public StepTest {
 protected:
  GroupStepTest() {
    auto batched = std::make_shared<BatchedReplicas>();
    batched->group_size = 2;
    batched->batched_arguments = {false, true};
    batched->batched_outputs = {false, true};
    batched->mirrored_arguments = {ArgumentNumber(0)};
    CompiledProgram compiled = Replicas(4);
    compiled.batched = std::move(batched);
    FakeProgram::Parts parts;
    parts.batched = group_program_;
    program_ = std::make_shared<FakeProgram>(std::move(compiled), std::move(parts));
    program_->build_alone = [this]() -> absl::StatusOr<std::shared_ptr<Program>> {
      if (!alone_error_.ok()) return alone_error_;
      return alone_program_;
    };
  }

  // Replica i has the arguments `mirrored[i]` and i.
  std::shared_ptr<Step> MakeGroups(const std::vector<float>& mirrored) {
    std::vector<StepArguments> arguments;
    for (size_t i = 0; i < mirrored.size(); ++i) {
      arguments.push_back({{FloatTensor({mirrored[i]}), FloatTensor({1.0f * i})}});
    }
    return Make(program_, std::move(arguments));
  }

  std::shared_ptr<FakeProgram> group_program_ = std::make_shared<FakeProgram>(Replicas(2));
  std::shared_ptr<FakeProgram> alone_program_ = std::make_shared<FakeProgram>(Replicas(4));
  absl::Status alone_error_;
  std::shared_ptr<FakeProgram> program_;
};

TEST_F(GroupStepTest, GroupsRunAsOne) {
  MakeGroups({9, 9, 9, 9})->Start();
  EXPECT_TRUE(program_->runs.empty());
  ASSERT_EQ(group_program_->runs.size(), 2);
  for (FakeProgram::Run& run : group_program_->runs) {
    const int first = run.core.replica.value();
    EXPECT_EQ(run.core.group_cores[1], Core(first + 1));
    EXPECT_EQ(FloatsOf(run.argument(0)), std::vector<float>{9});
    EXPECT_EQ(run.argument(1).shape(), tensorflow::TensorShape({2, 1}));
    EXPECT_EQ(FloatsOf(run.argument(1)), (std::vector<float>{1.0f * first, 1.0f * first + 1}));
    Tensor rows = run.argument(1);
    run.End({FloatTensor({8}), rows});
  }
  ASSERT_EQ(status_, absl::OkStatus());
  ASSERT_EQ(outputs_.size(), 4);
  for (int slot = 0; slot < 4; ++slot) {
    EXPECT_EQ(FloatsOf(OutputOf(slot, 0)), std::vector<float>{8});
    EXPECT_EQ(OutputOf(slot, 1).shape(), tensorflow::TensorShape({1}));
    EXPECT_EQ(FloatsOf(OutputOf(slot, 1)), std::vector<float>{1.0f * slot});
  }
}

TEST_F(GroupStepTest, AnErrorNamesTheReplicasOfItsGroup) {
  MakeGroups({9, 9, 9, 9})->Start();
  FakeProgram::Run& first = group_program_->runs[0];
  FakeProgram::Run& second = group_program_->runs[1];
  (first.core.replica == Replica(2) ? first : second).Fail(absl::InternalError("broken"));
  EXPECT_FALSE(status_.has_value());
  (first.core.replica == Replica(2) ? second : first).End({FloatTensor({8}), FloatTensor({1})});
  EXPECT_EQ(status_,
            absl::InternalError("One of the replicas 2 to 3 of TPU program train failed on core 2: "
                                "broken"));
  for (const Outputs& outputs : outputs_) EXPECT_TRUE(outputs.empty());
}

TEST_F(GroupStepTest, ReplicasThatDifferRunAloneFromThenOn) {
  MakeGroups({9, 9, 9, 1})->Start();
  EXPECT_TRUE(group_program_->runs.empty() && alone_program_->runs.empty());
  ASSERT_EQ(long_work_.size(), 1);
  long_work_[0]();
  ASSERT_EQ(alone_program_->runs.size(), 4);
  for (FakeProgram::Run& run : alone_program_->runs) run.End({run.argument(0)});
  ASSERT_EQ(status_, absl::OkStatus());
  EXPECT_EQ(FloatsOf(OutputOf(3, 0)), std::vector<float>{1});

  status_.reset();
  alone_program_->runs.clear();
  MakeGroups({9, 9, 9, 9})->Start();
  EXPECT_EQ(long_work_.size(), 1);
  ASSERT_EQ(alone_program_->runs.size(), 4);
  for (FakeProgram::Run& run : alone_program_->runs) run.End({});
  EXPECT_EQ(status_, absl::OkStatus());
}

TEST_F(GroupStepTest, AProgramThatCannotBeCompiledFailsTheStep) {
  alone_error_ = absl::UnimplementedError("no such op");
  MakeGroups({9, 9, 9, 1})->Start();
  EXPECT_FALSE(status_.has_value());
  long_work_[0]();
  EXPECT_EQ(status_, alone_error_);
}

TEST_F(GroupStepTest, AStepThatFailsWhileItIsCompiledStartsNothing) {
  const auto step = MakeGroups({9, 9, 9, 1});
  step->Start();
  step->Fail(absl::CancelledError("cancelled"));
  EXPECT_FALSE(status_.has_value());
  long_work_[0]();
  EXPECT_TRUE(alone_program_->runs.empty());
  EXPECT_EQ(status_, absl::CancelledError("cancelled"));
}

class InPlaceStepTest : public StepTest {
 protected:
  InPlaceStepTest() {
    CompiledProgram compiled = Replicas(1);
    compiled.cores.clear();
    compiled.overwritten_variables = {{kFirst, OutputNumber(0)}};
    program_ = std::make_shared<FakeProgram>(std::move(compiled));
  }

  static Tensor Filled(float value) {
    return FloatTensor(std::vector<float>(kManyElements, value));
  }

  std::shared_ptr<FakeProgram> program_;
  OneVariable variable_{Filled(1)};
};

TEST_F(InPlaceStepTest, OverwritesTheVariable) {
  const auto step = Make(program_, {variable_.Arguments()});
  program_->on_start = [&](FakeProgram::Run& run) {
    EXPECT_EQ(run.options.overwritable, std::vector<ArgumentNumber>{kFirst});
    run.arguments[kFirst].flat<float>().setConstant(2);
    const Tensor updated = run.argument(0);
    // Its last reference but this one goes with the run, so the step must not.
    run.End({updated});
  };
  const void* buffer = (*variable_).tensor()->data();
  step->Start();
  EXPECT_EQ(status_, absl::OkStatus());
  EXPECT_EQ((*variable_).tensor()->data(), buffer);
  EXPECT_EQ((*variable_).tensor()->flat<float>()(0), 2);
}

// A variable that already has its new value must not belong to a step that reports a failure.
TEST_F(InPlaceStepTest, IsTooLateToFailOnceItHasBegun) {
  const auto step = Make(program_, {variable_.Arguments()});
  program_->on_start = [&](FakeProgram::Run& run) {
    step->Fail(absl::CancelledError("cancelled"));
    run.End({Filled(2)});
  };
  step->Start();
  EXPECT_EQ(status_, absl::OkStatus());
  EXPECT_EQ((*variable_).tensor()->flat<float>()(0), 2);
  EXPECT_TRUE(transfers_.log.empty());
}

TEST_F(InPlaceStepTest, LeavesTheVariableAloneIfItFailedBefore) {
  const auto step = Make(program_, {variable_.Arguments()});
  step->Fail(absl::CancelledError("cancelled"));
  step->Start();
  EXPECT_EQ(status_, absl::CancelledError("cancelled"));
  EXPECT_TRUE(program_->runs.empty());
  EXPECT_EQ((*variable_).tensor()->flat<float>()(0), 1);
}

TEST_F(InPlaceStepTest, GivesTheVariableBackIfTheRunCannotBegin) {
  program_->on_start = [&](FakeProgram::Run& run) {
    EXPECT_EQ((*variable_).tensor()->NumElements(), 0);
    run.Fail(absl::ResourceExhaustedError("no memory"));
  };
  Make(program_, {variable_.Arguments()})->Start();
  EXPECT_EQ(status_, absl::ResourceExhaustedError(
                         "Replica 0 of TPU program train failed on core 0: no memory"));
  EXPECT_EQ((*variable_).tensor()->NumElements(), kManyElements);
  EXPECT_EQ((*variable_).tensor()->flat<float>()(0), 1);
}

// A thread of the compute pool must not wait while holding locks, and a small variable is not worth
// them.
TEST_F(InPlaceStepTest, TakesANewBufferWhereItMustNotWait) {
  pool_.is_caller = true;
  Make(program_, {variable_.Arguments()})->Start();
  ASSERT_EQ(program_->runs.size(), 1);
  EXPECT_TRUE(program_->runs[0].options.overwritable.empty());
  program_->runs[0].End({});

  pool_.is_caller = false;
  status_.reset();
  const OneVariable small(FloatTensor({1}));
  Make(program_, {small.Arguments()})->Start();
  ASSERT_EQ(program_->runs.size(), 2);
  EXPECT_EQ(FloatsOf(program_->runs[1].argument(0)), std::vector<float>{1});
  EXPECT_TRUE(program_->runs[1].options.overwritable.empty());
  program_->runs[1].End({});
}

// Two replicas each return their own value and a gradient. The update returns the variable.
class UpdateStepTest : public StepTest {
 protected:
  UpdateStepTest() {
    auto update = std::make_shared<SharedUpdate>();
    update->num_arguments = 1;
    Combination sum;
    sum.type = xla::F32;
    update->combinations = {sum};
    update->replica_outputs = {OutputNumber(1)};
    update->update_outputs = {OutputNumber(0)};
    update->read_arguments = {kFirst};
    CompiledProgram compiled = Replicas(2);
    compiled.shared_update = std::move(update);
    compiled.num_combined_outputs = 1;
    FakeProgram::Parts parts;
    parts.shared_update = update_program_;
    program_ = std::make_shared<FakeProgram>(std::move(compiled), std::move(parts));
  }

  void EndReplicas() {
    for (FakeProgram::Run& run : program_->runs) {
      const float replica = run.core.replica.value();
      run.End({FloatTensor({replica}), FloatTensor({1 + replica, 10 + replica})});
    }
  }

  std::shared_ptr<FakeProgram> update_program_ = std::make_shared<FakeProgram>(Replicas(1));
  std::shared_ptr<FakeProgram> program_;
};

TEST_F(UpdateStepTest, RunsOnceForEqualReplicas) {
  Make(program_, {{{FloatTensor({5})}}, {{FloatTensor({5})}}})->Start();
  EndReplicas();
  ASSERT_EQ(update_program_->runs.size(), 1);
  FakeProgram::Run& update = update_program_->runs[0];
  ASSERT_EQ(update.arguments.size(), 2);
  EXPECT_EQ(FloatsOf(update.argument(0)), std::vector<float>{5});
  EXPECT_EQ(FloatsOf(update.argument(1)), (std::vector<float>{3, 21}));
  EXPECT_FALSE(status_.has_value());
  update.End({FloatTensor({6})});
  ASSERT_EQ(status_, absl::OkStatus());
  for (int slot = 0; slot < 2; ++slot) {
    ASSERT_EQ(outputs_[Slot(slot)].size(), 2);
    EXPECT_EQ(FloatsOf(OutputOf(slot, 0)), std::vector<float>{6});
    EXPECT_EQ(FloatsOf(OutputOf(slot, 1)), std::vector<float>{1.0f * slot});
  }
  EXPECT_EQ(OutputOf(0, 0).data(), OutputOf(1, 0).data());
}

TEST_F(UpdateStepTest, RunsForEachOfReplicasThatDiffer) {
  Make(program_, {{{FloatTensor({5})}}, {{FloatTensor({7})}}})->Start();
  EndReplicas();
  ASSERT_EQ(update_program_->runs.size(), 2);
  for (FakeProgram::Run& run : update_program_->runs) {
    EXPECT_EQ(FloatsOf(run.argument(1)), (std::vector<float>{3, 21}));
    const Tensor own = run.argument(0);
    run.End({own});
  }
  ASSERT_EQ(status_, absl::OkStatus());
  EXPECT_EQ(FloatsOf(OutputOf(0, 0)), std::vector<float>{5});
  EXPECT_EQ(FloatsOf(OutputOf(1, 0)), std::vector<float>{7});
}

TEST_F(UpdateStepTest, DoesNotRunIfAReplicaHasFailed) {
  Make(program_, {{{FloatTensor({5})}}, {{FloatTensor({5})}}})->Start();
  program_->runs[0].End({FloatTensor({0}), FloatTensor({0, 0})});
  program_->runs[1].Fail(absl::InternalError("broken"));
  EXPECT_TRUE(update_program_->runs.empty());
  ASSERT_TRUE(status_.has_value());
  EXPECT_TRUE(absl::StrContains(status_->message(), "broken")) << *status_;
}

TEST_F(UpdateStepTest, IsTooLateToFailOnceItRuns) {
  const auto step = Make(program_, {{{FloatTensor({5})}}, {{FloatTensor({5})}}});
  step->Start();
  EndReplicas();
  step->Fail(absl::CancelledError("cancelled"));
  EXPECT_TRUE(transfers_.log.empty());
  update_program_->runs[0].End({FloatTensor({6})});
  EXPECT_EQ(status_, absl::OkStatus());
}

TEST_F(UpdateStepTest, ItsOwnErrorSaysThatItIsTheUpdate) {
  Make(program_, {{{FloatTensor({5})}}, {{FloatTensor({5})}}})->Start();
  EndReplicas();
  EXPECT_TRUE(transfers_.log.empty());
  update_program_->runs[0].Fail(absl::ResourceExhaustedError("no memory"));
  EXPECT_EQ(status_,
            absl::ResourceExhaustedError("The update of TPU program train failed: no memory"));
  // Whatever its replicas have put into outfeeds is dropped.
  ASSERT_EQ(transfers_.log.size(), 1u);
  EXPECT_TRUE(absl::StrContains(transfers_.log[0], "no memory")) << transfers_.log[0];
  for (const Outputs& outputs : outputs_) EXPECT_TRUE(outputs.empty());
}

}  // namespace
}  // namespace tf_tpu_ext
