#include "cc/transfer/host_calls.h"

#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cc/base/core_threads.h"
#include "cc/base/wait_monitor_testing.h"
#include "cc/transfer/host_function_testing.h"
#include "cc/transfer/host_functions.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

// Lets a test hold up the op below. Never deleted: the op may still be using it.
absl::Notification* gate = nullptr;

REGISTER_OP("TpuExtTest>Wait").Input("x: float").Output("y: float").SetIsStateful();

class WaitOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* context) override {
    gate->WaitForNotification();
    context->set_output(0, context->input(0));
  }
};
REGISTER_KERNEL_BUILDER(Name("TpuExtTest>Wait").Device(tensorflow::DEVICE_CPU), WaitOp);

std::atomic<int> counted{0};

REGISTER_OP("TpuExtTest>Count").Input("x: float").Output("y: float").SetIsStateful();

class CountOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* context) override {
    ++counted;
    context->set_output(0, context->input(0));
  }
};
REGISTER_KERNEL_BUILDER(Name("TpuExtTest>Count").Device(tensorflow::DEVICE_CPU), CountOp);

enum { kSquare, kCheck, kWait, kCount };

class HostCallsTest : public ::testing::Test {
 protected:
  HostCallsTest() {
    gate = new absl::Notification;
    auto functions = HostFunctions::Create(
        {ChainOfOps("square", {"Square"}), ChainOfOps("check", {"CheckNumerics"}),
         ChainOfOps("wait", {"TpuExtTest>Wait"}), ChainOfOps("count", {"TpuExtTest>Count"})},
        /*num_slots=*/1, &host_threads_, &stats_);
    EXPECT_TRUE(functions.ok()) << functions.status();
    functions_ = *std::move(functions);
    calls_ = std::make_shared<HostCalls>(functions_, 0, &host_threads_, &wait_monitor_,
                                         [this](const absl::Status& status) { Fail(status); });
  }
  ~HostCallsTest() override {
    if (!gate->HasBeenNotified()) gate->Notify();
  }

  void Fail(const absl::Status& status) {
    failure_ = status;
    failed_.Notify();
  }

  static Tensor Scalar(float value) {
    Tensor tensor(tensorflow::DT_FLOAT, {});
    tensor.scalar<float>()() = value;
    return tensor;
  }

  TransferStats stats_;
  FakeMonitor wait_monitor_;
  absl::Notification failed_;
  absl::Status failure_;
  // Destroyed before the members above, which a thread uses until it has returned from the last
  // call.
  CoreThreads host_threads_{CoreThreads::Options{/*usual_threads=*/2, /*max_threads=*/8}};
  std::shared_ptr<HostFunctions> functions_;
  std::shared_ptr<HostCalls> calls_;
};

TEST_F(HostCallsTest, KnowsWhatMayBlock) {
  EXPECT_EQ(functions_->kind(kSquare), HostFunctionKind::kPure);
  EXPECT_EQ(functions_->kind(kWait), HostFunctionKind::kBlocks);
  EXPECT_TRUE(calls_->MayRunNow(kSquare));
  EXPECT_FALSE(calls_->MayRunNow(kWait));
}

TEST_F(HostCallsTest, RunsOnTheCallersThread) {
  std::vector<Tensor> outputs;
  ASSERT_TRUE(calls_->RunNow(kSquare, {Scalar(3)}, &outputs).ok());
  ASSERT_EQ(outputs.size(), 1);
  EXPECT_EQ(outputs[0].scalar<float>()(), 9);
}

TEST_F(HostCallsTest, ErrorsNameOpAndLine) {
  std::vector<Tensor> outputs;
  const absl::Status status = calls_->RunNow(kCheck, {Scalar(NAN)}, &outputs);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* part : {"train.py:7", "the_op", "not a number"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status;
  }
}

TEST_F(HostCallsTest, CallsFollowEachOther) {
  absl::Notification first, second;
  calls_->Start(kWait, {Scalar(1)}, [&](const auto& outputs) {
    EXPECT_TRUE(outputs.ok());
    EXPECT_FALSE(second.HasBeenNotified());
    first.Notify();
  });
  EXPECT_FALSE(calls_->MayRunNow(kSquare));
  calls_->Start(kSquare, {Scalar(2)}, [&](const auto& outputs) {
    EXPECT_TRUE(outputs.ok());
    second.Notify();
  });
  absl::Notification idle;
  calls_->WhenIdle([&] { idle.Notify(); });
  EXPECT_FALSE(idle.HasBeenNotified());
  gate->Notify();
  first.WaitForNotification();
  second.WaitForNotification();
  idle.WaitForNotification();
}

TEST_F(HostCallsTest, AbortEndsWaitsAtOnce) {
  absl::Notification ended;
  calls_->Start(kWait, {Scalar(1)}, [&](const auto& outputs) {
    EXPECT_EQ(outputs.status().code(), absl::StatusCode::kAborted);
    ended.Notify();
  });
  absl::Notification idle;
  calls_->WhenIdle([&] { idle.Notify(); });
  calls_->Abort(absl::AbortedError("another core failed"));
  ended.WaitForNotification();
  idle.WaitForNotification();
  bool refused = false;
  calls_->Start(kSquare, {Scalar(2)}, [&](const auto& outputs) { refused = !outputs.ok(); });
  EXPECT_TRUE(refused);
}

TEST_F(HostCallsTest, CallsWithoutResultAreMadeExactlyOnce) {
  constexpr int kCalls = 50000;
  counted = 0;
  for (int i = 0; i < kCalls; ++i) {
    // With pauses, the calls sometimes run out just as the next one comes.
    for (int pause = i % 16; pause > 0; --pause) absl::Now();
    calls_->Start(kCount, {Scalar(1)}, nullptr);
  }
  absl::Notification idle;
  calls_->WhenIdle([&] { idle.Notify(); });
  idle.WaitForNotification();
  EXPECT_EQ(counted, kCalls);
}

TEST_F(HostCallsTest, AResultComesAfterTheCallsBeforeIt) {
  counted = 0;
  for (int i = 0; i < 1000; ++i) {
    calls_->Start(kCount, {Scalar(1)}, nullptr);
    absl::Notification done;
    calls_->Start(kCount, {Scalar(1)}, [&](const auto& outputs) {
      EXPECT_TRUE(outputs.ok());
      EXPECT_EQ(counted, 2 * (i + 1));
      done.Notify();
    });
    done.WaitForNotification();
  }
}

TEST_F(HostCallsTest, ALongWaitForAResultFailsTheProgram) {
  absl::Notification ended;
  calls_->Start(kWait, {Scalar(1)}, [&](const auto&) { ended.Notify(); });
  wait_monitor_.Expire(absl::Minutes(3));
  failed_.WaitForNotification();
  EXPECT_EQ(failure_.code(), absl::StatusCode::kDeadlineExceeded);
  for (const char* part : {"train.py:7 waited longer than the limit of 3m",
                           "its function on the host has not returned"}) {
    EXPECT_NE(failure_.message().find(part), std::string::npos) << failure_;
  }
  // The program itself ends the wait, through Abort.
  EXPECT_FALSE(ended.HasBeenNotified());
  calls_->Abort(failure_);
  ended.WaitForNotification();
}

TEST_F(HostCallsTest, AResultLeavesNoWaitBehind) {
  absl::Notification ended;
  calls_->Start(kSquare, {Scalar(2)}, [&](const auto& outputs) {
    EXPECT_EQ(wait_monitor_.num_waits(), 0);
    ASSERT_TRUE(outputs.ok());
    EXPECT_EQ((*outputs)[0].template scalar<float>()(), 4);
    ended.Notify();
  });
  ended.WaitForNotification();
}

TEST_F(HostCallsTest, CallsAreCountedWithTheirBytes) {
  std::vector<Tensor> outputs;
  ASSERT_TRUE(calls_->RunNow(kSquare, {Scalar(3)}, &outputs).ok());
  absl::Notification ended;
  calls_->Start(kSquare, {Scalar(2)}, [&](const auto&) { ended.Notify(); });
  ended.WaitForNotification();
  const ClusterCounters& counters = functions_->counters(kSquare);
  EXPECT_EQ(counters.calls, 2);
  EXPECT_EQ(counters.bytes_to_host, 2 * sizeof(float));
  EXPECT_EQ(counters.bytes_to_device, 2 * sizeof(float));
  EXPECT_GT(counters.running_nanoseconds, 0);
  EXPECT_GE(counters.waiting_nanoseconds, counters.running_nanoseconds);
  EXPECT_EQ(functions_->counters(kCount).calls, 0);
}

TEST_F(HostCallsTest, AFailureWithoutResultIsTold) {
  calls_->Start(kCheck, {Scalar(NAN)}, nullptr);
  failed_.WaitForNotification();
  EXPECT_NE(failure_.message().find("not a number"), std::string::npos);
}

}  // namespace
}  // namespace tf_tpu_ext
