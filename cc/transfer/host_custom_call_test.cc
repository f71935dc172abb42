// Calls to host functions from a running program, through XLA's custom calls.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "cc/base/core_context.h"
#include "cc/base/custom_call_tester.h"
#include "cc/base/tensor_testing.h"
#include "cc/program/host_call.h"
#include "cc/transfer/host_calls.h"
#include "cc/transfer/host_function_testing.h"
#include "cc/transfer/host_functions.h"
#include "cc/transfer/process_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

// Where an op waits for the test. Never deleted: the op of an aborted call may still be using it.
struct Gate {
  absl::Notification reached;
  absl::Notification opened;
};
Gate* call_gate = nullptr;

REGISTER_OP("TpuExtTest>Gate").Input("x: float").Output("y: float").SetIsStateful();

class GateOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* context) override {
    Gate& gate = *call_gate;
    gate.reached.Notify();
    gate.opened.WaitForNotification();
    context->set_output(0, context->input(0));
  }
};
REGISTER_KERNEL_BUILDER(Name("TpuExtTest>Gate").Device(tensorflow::DEVICE_CPU), GateOp);

enum { kCallSquare, kCallCheck, kCallGate };

class HostCallTest : public testing::Test {
 protected:
  HostCallTest() {
    call_gate = new Gate;
    auto functions = HostFunctions::Create(
        {ChainOfOps("square", {"Square"}), ChainOfOps("check", {"CheckNumerics"}),
         ChainOfOps("gate", {"TpuExtTest>Gate"})},
        /*num_slots=*/1, &process_.host_threads, &process_.transfer_stats);
    EXPECT_TRUE(functions.ok()) << functions.status();
    functions_ = *std::move(functions);
    calls_ = std::make_shared<HostCalls>(functions_, /*slot=*/0, &process_.host_threads,
                                         &process_.wait_monitor,
                                         [this](const absl::Status& status) { failure_ = status; });
    core_.host_calls = calls_.get();
  }
  ~HostCallTest() override {
    if (!call_gate->opened.HasBeenNotified()) call_gate->opened.Notify();
    AwaitIdle();
  }

  void AwaitIdle() {
    absl::Notification idle;
    calls_->WhenIdle([&] { idle.Notify(); });
    idle.WaitForNotification();
  }

  static std::unique_ptr<CustomCallTester> Make(int function, std::vector<Tensor> operands,
                                                std::vector<Tensor> results,
                                                std::vector<DynamicDimension> dynamic = {}) {
    const HostCall call{"cluster", function, std::move(dynamic)};
    auto tester = CustomCallTester::Create(kHostCallTarget, Encode(call), std::move(operands),
                                           std::move(results));
    EXPECT_TRUE(tester.ok()) << tester.status();
    return *std::move(tester);
  }

  CoreContext core_;
  absl::Status failure_;
  TestProcess& process_ = TestProcess::Get();
  std::shared_ptr<HostFunctions> functions_;
  std::shared_ptr<HostCalls> calls_;
};

TEST_F(HostCallTest, WhatCannotBlockIsDoneAtOnce) {
  const auto call =
      Make(kCallSquare, {MakeVector<float>({1, 2, 3})}, {MakeVector<float>({0, 0, 0})});
  const auto event = call->Start(&core_);
  ASSERT_TRUE(event.ok() && event->IsConcrete());
  EXPECT_EQ(ValuesOf<float>(call->result(0)), std::vector<float>({1, 4, 9}));
  EXPECT_GE(functions_->counters(kCallSquare).calls, 1);
}

TEST_F(HostCallTest, TheProgramWaitsForWhatBlocks) {
  const auto call = Make(kCallGate, {MakeScalar<float>(5)}, {MakeScalar<float>(0)});
  auto event = call->Start(&core_);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_FALSE(event->IsAvailable());
  call_gate->opened.Notify();
  tsl::BlockUntilReady(*event);
  EXPECT_TRUE(event->IsConcrete());
  EXPECT_EQ(call->result(0).scalar<float>()(), 5);
}

TEST_F(HostCallTest, NobodyWaitsForACallWithoutResults) {
  const auto call = Make(kCallGate, {MakeScalar<float>(5)}, {});
  const auto event = call->Start(&core_);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_TRUE(event->IsConcrete());
  // The program may change its memory from now on.
  call->operand(0).scalar<float>()() = 6;
  call_gate->opened.Notify();
  AwaitIdle();
  EXPECT_TRUE(failure_.ok()) << failure_;
}

TEST_F(HostCallTest, TakesDynamicTensorsAtTheirSize) {
  const auto call = Make(kCallSquare, {MakeVector<float>({1, 2, 3}), MakeScalar<int32_t>(2)},
                         {MakeVector<float>({0, 0})}, {{0, 0}});
  ASSERT_TRUE(call->Run(&core_).ok());
  EXPECT_EQ(ValuesOf<float>(call->result(0)), std::vector<float>({1, 4}));
  // The function now returns a different size from the one that the program was compiled for.
  call->operand(1).scalar<int32_t>()() = 3;
  const absl::Status status = call->Run(&core_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("for op cluster is float[3]; the compiled program expects "
                                  "float[2]"),
            std::string::npos)
      << status;
  call->operand(1).scalar<int32_t>()() = -1;
  EXPECT_EQ(call->Run(&core_).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(HostCallTest, ErrorsNameTheFunctionsPlace) {
  const auto call = Make(kCallCheck, {MakeScalar<float>(NAN)}, {MakeScalar<float>(0)});
  const absl::Status status = call->Run(&core_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("outside_compilation at train.py:7"), std::string::npos)
      << status;
}

TEST_F(HostCallTest, AbortedCallsEnd) {
  const auto call = Make(kCallGate, {MakeScalar<float>(5)}, {MakeScalar<float>(0)});
  auto event = call->Start(&core_);
  ASSERT_TRUE(event.ok()) << event.status();
  // After the test, nobody waits for the op, which must not reach for another test's gate.
  call_gate->reached.WaitForNotification();
  calls_->Abort(absl::AbortedError("another core failed"));
  tsl::BlockUntilReady(*event);
  ASSERT_TRUE(event->IsError());
  EXPECT_EQ(event->GetError().code(), absl::StatusCode::kAborted);
}

TEST_F(HostCallTest, RunsInTpuProgramsOnly) {
  const auto call = Make(kCallSquare, {MakeScalar<float>(5)}, {MakeScalar<float>(0)});
  EXPECT_EQ(call->Run(nullptr).code(), absl::StatusCode::kFailedPrecondition);
  core_.host_calls = nullptr;
  EXPECT_EQ(call->Run(&core_).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tf_tpu_ext
