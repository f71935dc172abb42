#include "cc/kernels/ordered_update.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "cc/base/machine.h"
#include "cc/base/process.h"
#include "cc/base/tensor_testing.h"
#include "cc/kernels/kernel_testing.h"
#include "cc/runtime/core_order.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;
using User = CoreOrder::User;

constexpr char kCore[] = "TPU:1";

// A variable on core 1 with the value 1.0, and programs that hold the core.
class OrderedUpdateTest : public testing::Test {
 protected:
  OrderedUpdateTest() : variable_(runner_.Variable(kCore, "v", {})) {
    EXPECT_TRUE(runner_.Assign(kCore, variable_, MakeScalar(1.0f)).ok());
  }

  static CoreOrder& order() { return *Process::Get().core_order; }

  // Returns when the program has the core, which an op gives up just after it has ended.
  static CoreOrder::Place Hold(int core, User user) {
    absl::Notification started;
    const CoreOrder::Entrance entrance =
        order().Enter({Core(core)}, user, [&started] { started.Notify(); });
    if (!entrance.starts) started.WaitForNotification();
    return entrance.place;
  }

  // An op that adds to the variable, 1 by default.
  std::unique_ptr<KernelRunner::Execution> StartAdd(
      tensorflow::CancellationManager* cancellation = nullptr,
      const Tensor& value = MakeScalar(1.0f)) {
    KernelRunner::Step step;
    step.cancellation = cancellation;
    auto add = runner_.Start(KernelRunner::Node("AssignAddVariableOp",
                                                [](tensorflow::NodeDef* node) {
                                                  AddNodeAttr("dtype", tensorflow::DT_FLOAT, node);
                                                }),
                             kCore, {variable_, value}, step);
    EXPECT_TRUE(add.ok()) << add.status();
    return *std::move(add);
  }

  float Value() {
    const auto value = runner_.Read(kCore, variable_);
    EXPECT_TRUE(value.ok()) << value.status();
    return value->scalar<float>()();
  }

  KernelRunner runner_;
  const Tensor variable_;
};

TEST_F(OrderedUpdateTest, RunsAtOnceOnAFreeCore) {
  const CoreOrder::Place other = Hold(0, User::kProgram);
  EXPECT_TRUE(StartAdd()->has_ended());
  EXPECT_EQ(Value(), 2.0f);
  order().Leave(other);
}

TEST_F(OrderedUpdateTest, FailsAsItsKernelDoes) {
  const auto misfit = StartAdd(/*cancellation=*/nullptr, MakeVector<float>({1, 2}));
  const absl::Status status = misfit->Wait().status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(Value(), 1.0f);
  // The op has given up its place.
  order().Leave(Hold(1, User::kProgram));
}

TEST_F(OrderedUpdateTest, WaitsForAProgram) {
  const CoreOrder::Place program = Hold(1, User::kProgram);
  const auto first = StartAdd();
  const auto second = StartAdd();
  EXPECT_FALSE(first->has_ended());
  EXPECT_FALSE(second->has_ended());
  EXPECT_EQ(Value(), 1.0f);
  order().Leave(program);
  EXPECT_TRUE(first->Wait().ok());
  EXPECT_TRUE(second->Wait().ok());
  EXPECT_EQ(Value(), 3.0f);
}

TEST_F(OrderedUpdateTest, WhatItsKernelRefusesIsCompiledAndTakesTurnsToo) {
  const auto of_state = [](const char* op) {
    return KernelRunner::Node(op, [](tensorflow::NodeDef* node) {
      AddNodeAttr("dtype", tensorflow::DT_INT64, node);
      if (node->op() != "VarHandleOp") return;
      AddNodeAttr("shape", tensorflow::TensorShape({2}), node);
      AddNodeAttr("shared_name", "state", node);
    });
  };
  const auto state = runner_.Run(of_state("VarHandleOp"), kCore, {});
  ASSERT_TRUE(state.ok()) << state.status();
  const Tensor& handle = (*state)[0];
  const auto assigned =
      runner_.Run(of_state("AssignVariableOp"), kCore, {handle, MakeVector<int64_t>({1, 2})});
  ASSERT_TRUE(assigned.ok()) << assigned.status();
  const CoreOrder::Place program = Hold(1, User::kProgram);
  // With ThreeFry, which the CPU lacks.
  const auto skip =
      runner_.Start(KernelRunner::Node("RngSkip"), kCore,
                    {handle, MakeScalar<int64_t>(2), MakeScalar<int64_t>(3)}, KernelRunner::Step());
  ASSERT_TRUE(skip.ok()) << skip.status();
  EXPECT_FALSE((*skip)->has_ended());
  order().Leave(program);
  const auto skipped = (*skip)->Wait();
  EXPECT_TRUE(skipped.ok()) << skipped.status();
  const auto value = runner_.Run(of_state("ReadVariableOp"), kCore, {handle});
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ((*value)[0].flat<int64_t>()(0), 1 + 3 * 256);
  order().Leave(Hold(1, User::kProgram));
}

TEST_F(OrderedUpdateTest, DoesNotWaitForAProgramThatMayNeedIt) {
  const CoreOrder::Place program = Hold(1, User::kProgramThatCallsHost);
  EXPECT_TRUE(StartAdd()->has_ended());
  EXPECT_EQ(Value(), 2.0f);
  order().Leave(program);
}

TEST_F(OrderedUpdateTest, IsCancelledWhileItWaits) {
  const CoreOrder::Place program = Hold(1, User::kProgram);
  tensorflow::CancellationManager cancellation;
  const auto before = StartAdd(&cancellation);
  cancellation.StartCancel();
  EXPECT_TRUE(absl::IsCancelled(before->Wait().status()));
  const auto after = StartAdd(&cancellation);
  EXPECT_TRUE(absl::IsCancelled(after->Wait().status()));
  order().Leave(program);
  EXPECT_EQ(Value(), 1.0f);
  // Neither keeps its place.
  order().Leave(Hold(1, User::kProgram));
}

TEST_F(OrderedUpdateTest, WaitsNoLongerThanTheLimit) {
  MachineOptions options = GetMachineOptions();
  const absl::Duration limit = std::exchange(options.wait_limit, absl::Milliseconds(50));
  ASSERT_TRUE(Process::Get().machine->SetOptions(options).ok());
  const CoreOrder::Place program = Hold(1, User::kProgram);
  const absl::Status status = StartAdd()->Wait().status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(),
                                "Op node (AssignAddVariableOp) updates a variable of core 1"))
      << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "wait_limit_seconds")) << status;
  order().Leave(program);
  options.wait_limit = limit;
  ASSERT_TRUE(Process::Get().machine->SetOptions(options).ok());
  EXPECT_EQ(Value(), 1.0f);
}

TEST(UpdatesVariableTest, OpsThatWrite) {
  for (const char* op : {"AssignVariableOp", "AssignAddVariableOp", "ResourceApplyAdam",
                         "ResourceScatterAdd", "RngReadAndSkip"}) {
    EXPECT_TRUE(UpdatesVariable(op)) << op;
  }
  for (const char* op : {"ReadVariableOp", "ResourceGather", "VarHandleOp", "Add", "no such op"}) {
    EXPECT_FALSE(UpdatesVariable(op)) << op;
  }
}

}  // namespace
}  // namespace tf_tpu_ext
