// The transfers of a running program, through XLA's custom calls, with the test playing the host.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cc/base/core_context.h"
#include "cc/base/custom_call_tester.h"
#include "cc/base/tensor_testing.h"
#include "cc/program/transfer_call.h"
#include "cc/transfer/channels.h"
#include "cc/transfer/process_testing.h"
#include "cc/transfer/transfer_stats.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

class TransferTest : public testing::Test {
 protected:
  TransferTest() {
    TestProcess::Get();
    // Each test has its own launch and core, because the channels belong to the process.
    static int tests = 0;
    core_.launch_id = LaunchId(1000 + ++tests);
    core_.core = Core(100 * tests);
    core_.slot = Slot(3);
  }

  void Make(const TransferCall& call, std::vector<Tensor> operands, std::vector<Tensor> results) {
    auto tester = CustomCallTester::Create(kTransferTarget, Encode(call), std::move(operands),
                                           std::move(results));
    ASSERT_TRUE(tester.ok()) << tester.status();
    call_ = *std::move(tester);
  }

  ChannelKey OfLaunch(const char* name) const {
    return {core_.launch_id.value(), name, core_.slot.value()};
  }
  ChannelKey OfCore(const char* name, int core) const { return {kNoLaunch, name, core}; }

  static void Send(const ChannelKey& key, std::vector<Tensor> tensors) {
    TestProcess::Get().channels.Send(
        key, std::move(tensors), TensorChannels::kUnbounded,
        [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
  }

  // The next message, which must already have come.
  static std::vector<Tensor> Take(const ChannelKey& key) {
    std::optional<std::vector<Tensor>> taken;
    const auto id =
        TestProcess::Get().channels.Receive(key, [&](absl::StatusOr<TensorMessage> message) {
          if (message.ok()) taken = message->tensors;
        });
    if (!taken.has_value()) TestProcess::Get().channels.Cancel(key, id, absl::NotFoundError(""));
    EXPECT_TRUE(taken.has_value()) << key.DebugString();
    return taken.value_or(std::vector<Tensor>());
  }

  CoreContext core_;
  std::unique_ptr<CustomCallTester> call_;
};

TransferCall Infeed() {
  TransferCall call;
  call.op = "dequeue";
  call.receive = kInfeedName;
  return call;
}

TransferCall Cluster() {
  TransferCall call;
  call.op = "cluster";
  call.send = "to_host";
  call.receive = "to_device";
  return call;
}

TEST_F(TransferTest, TakesFromTheInfeedOfItsCore) {
  Make(Infeed(), {}, {MakeScalar<float>(0), MakeVector<int32_t>({0, 0})});
  Send(OfCore(kInfeedName, core_.core.value()),
       {MakeScalar<float>(7), MakeVector<int32_t>({1, 2})});
  ASSERT_TRUE(call_->Run(&core_).ok());
  EXPECT_EQ(call_->result(0).scalar<float>()(), 7);
  EXPECT_EQ(ValuesOf<int32_t>(call_->result(1)), std::vector<int32_t>({1, 2}));
}

TEST_F(TransferTest, WaitsForTheInfeed) {
  Make(Infeed(), {}, {MakeScalar<float>(0)});
  auto event = call_->Start(&core_);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_FALSE(event->IsAvailable());
  Send(OfCore(kInfeedName, core_.core.value()), {MakeScalar<float>(7)});
  tsl::BlockUntilReady(*event);
  EXPECT_TRUE(event->IsConcrete());
  EXPECT_EQ(call_->result(0).scalar<float>()(), 7);
}

TEST_F(TransferTest, AMemberOfAGroupTakesFromItsOwnCore) {
  const int first = core_.core.value();
  const Core cores[] = {Core(first), Core(first + 1), Core(first + 2)};
  core_.group_cores = cores;
  TransferCall call = Infeed();
  call.member = 2;
  Make(call, {}, {MakeScalar<float>(0)});
  Send(OfCore(kInfeedName, core_.core.value()), {MakeScalar<float>(1)});
  Send(OfCore(kInfeedName, first + 2), {MakeScalar<float>(3)});
  ASSERT_TRUE(call_->Run(&core_).ok());
  EXPECT_EQ(call_->result(0).scalar<float>()(), 3);
  // Replicas that run on their own have no group.
  core_.group_cores = nullptr;
  ASSERT_TRUE(call_->Run(&core_).ok());
  EXPECT_EQ(call_->result(0).scalar<float>()(), 1);
}

TEST_F(TransferTest, AFullOutfeedIsWaitedFor) {
  TransferCall call;
  call.op = "enqueue";
  call.send = kOutfeedName;
  Make(call, {MakeScalar<float>(0)}, {});
  for (int i = 0; i < kFeedCapacity; ++i) {
    call_->operand(0).scalar<float>()() = static_cast<float>(i);
    ASSERT_TRUE(call_->Run(&core_).ok());
  }
  call_->operand(0).scalar<float>()() = -1;
  auto event = call_->Start(&core_);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_FALSE(event->IsAvailable());
  for (int i = 0; i < kFeedCapacity; ++i) {
    const std::vector<Tensor> taken = Take(OfCore(kOutfeedName, core_.core.value()));
    ASSERT_EQ(taken.size(), 1);
    EXPECT_EQ(taken[0].scalar<float>()(), i);
  }
  tsl::BlockUntilReady(*event);
  EXPECT_TRUE(event->IsConcrete());
  EXPECT_EQ(Take(OfCore(kOutfeedName, core_.core.value()))[0].scalar<float>()(), -1);
}

TEST_F(TransferTest, AClusterSendsAndReceives) {
  TransferCall call = Cluster();
  call.counted_as = "cluster of this test";
  Make(call, {MakeVector<float>({1, 2})}, {MakeScalar<double>(0)});
  auto event = call_->Start(&core_);
  ASSERT_TRUE(event.ok()) << event.status();
  const std::vector<Tensor> sent = Take(OfLaunch("to_host"));
  ASSERT_EQ(sent.size(), 1);
  EXPECT_EQ(ValuesOf<float>(sent[0]), std::vector<float>({1, 2}));
  // The program may change its memory before the host has read what was sent.
  EXPECT_NE(sent[0].data(), call_->operand(0).data());
  EXPECT_FALSE(event->IsAvailable());
  Send(OfLaunch("to_device"), {MakeScalar<double>(5)});
  tsl::BlockUntilReady(*event);
  ASSERT_TRUE(event->IsConcrete());
  EXPECT_EQ(call_->result(0).scalar<double>()(), 5);

  const auto counters = TestProcess::Get().transfer_stats.CountersOf("cluster of this test");
  EXPECT_EQ(counters->calls, 1);
  EXPECT_EQ(counters->bytes_to_host, 2 * sizeof(float));
  EXPECT_EQ(counters->bytes_to_device, sizeof(double));
  EXPECT_GT(counters->waiting_nanoseconds, 0);
  // This host has not said when it took the arguments.
  EXPECT_EQ(counters->running_nanoseconds, 0);
}

TEST_F(TransferTest, PartsOfAClusterAreNotCalls) {
  TransferCall call = Cluster();
  call.op = "part of a cluster";
  call.receive.clear();
  call.counts_call = false;
  Make(call, {MakeScalar<float>(1)}, {});
  ASSERT_TRUE(call_->Run(&core_).ok());
  EXPECT_EQ(TestProcess::Get().transfer_stats.CountersOf("part of a cluster")->calls, 0);
  EXPECT_EQ(TestProcess::Get().transfer_stats.CountersOf("part of a cluster")->bytes_to_host,
            sizeof(float));
}

TEST_F(TransferTest, SendsDynamicTensorsAtTheirSize) {
  TransferCall call = Cluster();
  call.receive.clear();
  call.dynamic = {{0, 0}};
  Make(call, {MakeVector<float>({1, 2, 3}), MakeScalar<int32_t>(2)}, {});
  ASSERT_TRUE(call_->Run(&core_).ok());
  EXPECT_EQ(ValuesOf<float>(Take(OfLaunch("to_host"))[0]), std::vector<float>({1, 2}));
  call_->operand(1).scalar<int32_t>()() = 4;
  EXPECT_EQ(call_->Run(&core_).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TransferTest, ResultsMustBeAsTheProgramExpects) {
  Make(Infeed(), {}, {MakeScalar<float>(0)});
  Send(OfCore(kInfeedName, core_.core.value()), {MakeVector<float>({1, 2})});
  const absl::Status status = call_->Run(&core_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("op dequeue is float[2]; the compiled program expects float[]"),
            std::string::npos)
      << status;
}

TEST_F(TransferTest, AnAbortedLaunchWaitsNoLonger) {
  Make(Cluster(), {MakeScalar<float>(1)}, {MakeScalar<float>(0)});
  auto event = call_->Start(&core_);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_FALSE(event->IsAvailable());
  TestProcess::Get().channels.Abort(core_.launch_id.value(),
                                    absl::AbortedError("another core failed"));
  tsl::BlockUntilReady(*event);
  ASSERT_TRUE(event->IsError());
  EXPECT_EQ(event->GetError().code(), absl::StatusCode::kAborted);
  TestProcess::Get().channels.Forget(core_.launch_id.value(), absl::AbortedError(""));
}

TEST_F(TransferTest, RunsInTpuProgramsOnly) {
  Make(Infeed(), {}, {MakeScalar<float>(0)});
  const absl::Status status = call_->Run(nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("Op dequeue talks to the host"), std::string::npos) << status;
}

}  // namespace
}  // namespace tf_tpu_ext
