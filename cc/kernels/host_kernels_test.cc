// Tests the ops of the host graph that communicate with a program: outside compilation, infeed and
// outfeed. The test plays the program at the other end of their channels.
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cc/base/fault_points.h"
#include "cc/base/process.h"
#include "cc/base/tensor_testing.h"
#include "cc/kernels/kernel_testing.h"
#include "cc/program/compiled_program.h"
#include "cc/program/program_key.h"
#include "cc/runtime/launch_fakes.h"
#include "cc/runtime/program_cache.h"
#include "cc/transfer/channels.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/status.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AddNodeAttr;
using tensorflow::DataTypeVector;
using tensorflow::NodeDef;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class HostKernelsTest : public testing::Test {
 protected:
  HostKernelsTest() {
    // Each test has a launch of its own, because all tests share the process's channels.
    static int64_t launches = 7000;
    launch_id_ = ++launches;
  }
  ~HostKernelsTest() override {
    for (int core = 0; core < KernelRunner::kCores; ++core) {
      channels().Drain({kNoLaunch, kInfeedName, core});
      channels().Drain({kNoLaunch, kOutfeedName, core});
    }
  }

  static TensorChannels& channels() { return *Process::Get().channels; }

  static void Send(const ChannelKey& key, TensorMessage message) {
    channels().Send(key, std::move(message), TensorChannels::kUnbounded,
                    [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
  }

  // Takes the next message; nothing if there is none yet.
  static std::optional<std::vector<Tensor>> Take(const ChannelKey& key) {
    std::optional<std::vector<Tensor>> taken;
    const auto id = channels().Receive(key, [&](absl::StatusOr<TensorMessage> message) {
      if (message.ok()) taken = message->tensors;
    });
    if (!taken.has_value()) channels().Cancel(key, id, absl::NotFoundError(""));
    return taken;
  }

  Tensor KeyOfProgram(int64_t program_id) const {
    return EncodeProgramKey({program_id, "", LaunchId(launch_id_)}, /*program=*/nullptr);
  }

  ChannelKey OfLaunch(const std::string& name, int slot) const { return {launch_id_, name, slot}; }

  static NodeDef Receiver(const DataTypeVector& types) {
    return KernelRunner::Node("_XlaRecvAtHost", [&](NodeDef* node) {
      AddNodeAttr("Toutputs", types, node);
      AddNodeAttr("key", "to_host", node);
      AddNodeAttr("device_ordinal", 1, node);
    });
  }

  static NodeDef Feed(const std::string& op, int64_t core, const DataTypeVector& types) {
    return KernelRunner::Node(op, [&](NodeDef* node) {
      AddNodeAttr("dtypes", types, node);
      AddNodeAttr("shapes", std::vector<TensorShape>(types.size(), TensorShape({})), node);
      if (core != kCoreIsInput) AddNodeAttr("device_ordinal", core, node);
    });
  }

  static constexpr int64_t kCoreIsInput = -100;

  KernelRunner runner_;
  int64_t launch_id_ = 0;
};

const DataTypeVector kFloat = {tensorflow::DT_FLOAT};

TEST_F(HostKernelsTest, TheHostReceivesWhatItsCoreHasSent) {
  Send(OfLaunch("to_host", 0), {{MakeScalar<float>(0)}});
  Send(OfLaunch("to_host", 1), {{MakeVector<float>({1, 2}), MakeScalar<int32_t>(3)}});
  const auto received = runner_.Run(Receiver({tensorflow::DT_FLOAT, tensorflow::DT_INT32}), "CPU:0",
                                    {KeyOfProgram(1)});
  ASSERT_TRUE(received.ok()) << received.status();
  ASSERT_EQ(received->size(), 2);
  EXPECT_EQ(ValuesOf<float>((*received)[0]), (std::vector<float>{1, 2}));
  EXPECT_EQ(ValuesOf<int32_t>((*received)[1]), std::vector<int32_t>{3});
}

TEST_F(HostKernelsTest, TheHostSaysWhenItTookAMessage) {
  auto taken = std::make_shared<std::atomic<int64_t>>(0);
  const absl::Time before = absl::Now();
  Send(OfLaunch("to_host", 1), {{MakeScalar<float>(1)}, taken});
  ASSERT_TRUE(runner_.Run(Receiver(kFloat), "CPU:0", {KeyOfProgram(1)}).ok());
  EXPECT_GE(taken->load(), absl::ToUnixNanos(before));
  EXPECT_LE(taken->load(), absl::ToUnixNanos(absl::Now()));
}

TEST_F(HostKernelsTest, OtherTensorsThanDeclaredAreAnError) {
  Send(OfLaunch("to_host", 1), {{MakeScalar<float>(1), MakeScalar<float>(2)}});
  absl::Status status = runner_.Run(Receiver(kFloat), "CPU:0", {KeyOfProgram(1)}).status();
  EXPECT_EQ(status, absl::InvalidArgumentError("Op node gets 2 tensors; it has 1 outputs."));
  Send(OfLaunch("to_host", 1), {{MakeScalar<int32_t>(1)}});
  status = runner_.Run(Receiver(kFloat), "CPU:0", {KeyOfProgram(1)}).status();
  EXPECT_EQ(status,
            absl::InvalidArgumentError("Output 0 of op node gets int32; it is declared as float."));
}

TEST_F(HostKernelsTest, TheHostSendsToItsCore) {
  const NodeDef node = KernelRunner::Node("_XlaSendFromHost", [](NodeDef* node) {
    AddNodeAttr("Tinputs", DataTypeVector{tensorflow::DT_FLOAT, tensorflow::DT_FLOAT}, node);
    AddNodeAttr("key", "to_device", node);
    AddNodeAttr("device_ordinal", 2, node);
  });
  const absl::Status status =
      runner_.Run(node, "CPU:0", {MakeScalar<float>(5), MakeScalar<float>(6), KeyOfProgram(1)})
          .status();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Take(OfLaunch("to_device", 0)), std::nullopt);
  const auto sent = Take(OfLaunch("to_device", 2));
  ASSERT_TRUE(sent.has_value());
  ASSERT_EQ(sent->size(), 2);
  EXPECT_EQ((*sent)[0].scalar<float>()(), 5);
  EXPECT_EQ((*sent)[1].scalar<float>()(), 6);
}

TEST_F(HostKernelsTest, ACoreThatIsAnInputIsFoundInTheProgram) {
  const auto program = Process::Get().programs->GetOrCompile(
      absl::StrCat("host_kernels_test", launch_id_), [](int64_t id, CompilationRecord*) {
        CompiledProgram compiled;
        compiled.id = id;
        compiled.num_replicas = 2;
        compiled.cores = {Core(3), Core(1)};
        return std::make_shared<FakeProgram>(std::move(compiled));
      });
  ASSERT_TRUE(program.ok()) << program.status();
  const Tensor key = KeyOfProgram((*program)->compiled().id);
  const NodeDef receive = KernelRunner::Node("_XlaRecvAtHostV2", [](NodeDef* node) {
    AddNodeAttr("Toutputs", kFloat, node);
    AddNodeAttr("key", "to_host", node);
  });
  Send(OfLaunch("to_host", 1), {{MakeScalar<float>(11)}});
  const auto received = runner_.Run(receive, "CPU:0", {key, MakeScalar<int64_t>(1)});
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ((*received)[0].scalar<float>()(), 11);
  const NodeDef send = KernelRunner::Node("_XlaSendFromHostV2", [](NodeDef* node) {
    AddNodeAttr("Tinputs", kFloat, node);
    AddNodeAttr("key", "to_device", node);
  });
  ASSERT_TRUE(
      runner_.Run(send, "CPU:0", {MakeScalar<float>(12), key, MakeScalar<int64_t>(3)}).ok());
  EXPECT_EQ(Take(OfLaunch("to_device", 0))->at(0).scalar<float>()(), 12);

  const absl::Status elsewhere =
      runner_.Run(receive, "CPU:0", {key, MakeScalar<int64_t>(2)}).status();
  EXPECT_EQ(elsewhere.code(), absl::StatusCode::kInvalidArgument) << elsewhere;
  EXPECT_TRUE(absl::StrContains(elsewhere.message(), "core 2")) << elsewhere;
  const absl::Status unknown =
      runner_.Run(receive, "CPU:0", {KeyOfProgram(1'000'000), MakeScalar<int64_t>(1)}).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound) << unknown;
}

TEST_F(HostKernelsTest, WithoutAProgramThereIsNoTransfer) {
  const Tensor failed = EncodeCompilationFailure(absl::UnimplementedError("no such op"));
  absl::Status status = runner_.Run(Receiver(kFloat), "CPU:0", {failed}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  // The compile op's own error is the one to report.
  EXPECT_TRUE(tsl::StatusGroup::IsDerived(status)) << status;
  status =
      runner_.Run(Receiver(kFloat), "CPU:0", {MakeVector<tensorflow::tstring>({"a", "b", "c"})})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "A TPU program key is")) << status;
}

TEST_F(HostKernelsTest, CancellationOfTheStepEndsTheWait) {
  tensorflow::CancellationManager cancellation;
  const auto receiving =
      runner_.Start(Receiver(kFloat), "CPU:0", {KeyOfProgram(1)}, {/*id=*/1, &cancellation});
  ASSERT_TRUE(receiving.ok()) << receiving.status();
  EXPECT_FALSE((*receiving)->has_ended());
  cancellation.StartCancel();
  const absl::Status status = (*receiving)->Wait().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(absl::StrContains(status.message(), "Op node was cancelled.")) << status;
}

TEST_F(HostKernelsTest, TheEndOfTheLaunchEndsTheWait) {
  const auto receiving = runner_.Start(Receiver(kFloat), "CPU:0", {KeyOfProgram(1)}, {});
  ASSERT_TRUE(receiving.ok()) << receiving.status();
  channels().Abort(launch_id_, absl::AbortedError("core 3 failed"));
  EXPECT_EQ((*receiving)->Wait().status(), absl::AbortedError("core 3 failed"));
  channels().Forget(launch_id_, absl::AbortedError(""));
}

TEST_F(HostKernelsTest, InfeedGoesToTheCoreThatIsNamed) {
  // Named by the attribute, and by the device that the op is on.
  for (const auto& [device, ordinal] :
       std::vector<std::pair<std::string, int64_t>>{{"CPU:0", 2}, {"TPU:2", -1}}) {
    const auto queued =
        runner_.Run(Feed("InfeedEnqueueTuple", ordinal, kFloat), device, {MakeScalar<float>(8)});
    ASSERT_TRUE(queued.ok()) << queued.status();
    EXPECT_EQ(Take({kNoLaunch, kInfeedName, 1}), std::nullopt);
    const auto taken = Take({kNoLaunch, kInfeedName, 2});
    ASSERT_TRUE(taken.has_value());
    EXPECT_EQ(taken->at(0).scalar<float>()(), 8);
  }
}

TEST_F(HostKernelsTest, InfeedNeedsACore) {
  const auto enqueue = [this](const std::string& device, int64_t ordinal) {
    return runner_.Run(Feed("InfeedEnqueueTuple", ordinal, kFloat), device, {MakeScalar<float>(8)})
        .status();
  };
  EXPECT_TRUE(absl::StrContains(enqueue("CPU:0", -1).message(),
                                "CPU:0 and has device_ordinal=-1. Place it on a TPU device"))
      << enqueue("CPU:0", -1);
  EXPECT_EQ(enqueue("TPU:1", KernelRunner::kCores),
            absl::InvalidArgumentError("Op node names core 4; this virtual TPU has cores 0 to 3."));
}

TEST_F(HostKernelsTest, OutfeedGivesWhatTheCoreHasQueued) {
  Send({kNoLaunch, kOutfeedName, 3}, {{MakeScalar<float>(1)}});
  Send({kNoLaunch, kOutfeedName, 3}, {{MakeScalar<float>(2)}});
  auto taken = runner_.Run(Feed("OutfeedDequeueTuple", 3, kFloat), "CPU:0");
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ((*taken)[0].scalar<float>()(), 1);
  const NodeDef by_input = Feed("OutfeedDequeueTupleV2", kCoreIsInput, kFloat);
  taken = runner_.Run(by_input, "CPU:0", {MakeScalar<int32_t>(3)});
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ((*taken)[0].scalar<float>()(), 2);
  const absl::Status two = runner_.Run(by_input, "CPU:0", {MakeVector<int32_t>({0, 1})}).status();
  EXPECT_EQ(two, absl::InvalidArgumentError(
                     "The device_ordinal of op node has the shape [2]; it must be a scalar."));
}

TEST_F(HostKernelsTest, AFullInfeedIsWaitedForUntilItsStepFails) {
  const NodeDef node = Feed("InfeedEnqueueTuple", 0, kFloat);
  const ChannelKey infeed = {kNoLaunch, kInfeedName, 0};
  const KernelRunner::Step step = {/*id=*/42};
  for (int i = 0; i < kFeedCapacity; ++i) {
    const auto queued =
        runner_.Start(node, "CPU:0", {MakeScalar<float>(static_cast<float>(i))}, {/*id=*/41});
    ASSERT_TRUE(queued.ok()) << queued.status();
    ASSERT_TRUE((*queued)->Wait().ok());
  }
  const auto waiting = runner_.Start(node, "CPU:0", {MakeScalar<float>(100)}, step);
  const auto failing = runner_.Start(node, "CPU:0", {MakeScalar<float>(101)}, step);
  ASSERT_TRUE(waiting.ok() && failing.ok());
  EXPECT_FALSE((*waiting)->has_ended());
  // Makes room for one.
  EXPECT_EQ(Take(infeed)->at(0).scalar<float>()(), 0);
  EXPECT_TRUE((*waiting)->Wait().ok());
  EXPECT_FALSE((*failing)->has_ended());
  channels().DropSentBy(step.id, absl::InternalError("the step failed"));
  EXPECT_EQ((*failing)->Wait().status(), absl::InternalError("the step failed"));
  // What the other step has queued stays; what the failed one has queued does not.
  for (int i = 1; i < kFeedCapacity; ++i) EXPECT_EQ(Take(infeed)->at(0).scalar<float>()(), i);
  EXPECT_EQ(Take(infeed), std::nullopt);
}

TEST_F(HostKernelsTest, WhatAStepHasQueuedGoesWithTheFirstOpThatFails) {
  const auto enqueue = [&](int64_t core, int64_t step) {
    const auto started = runner_.Start(Feed("InfeedEnqueueTuple", core, kFloat), "CPU:0",
                                       {MakeScalar<float>(static_cast<float>(core))}, {step});
    return started.ok() ? (*started)->Wait().status() : started.status();
  };
  const auto is_queued = [&](int core) { return Take({kNoLaunch, kInfeedName, core}).has_value(); };
  const auto fails = [&](int64_t step) { return enqueue(KernelRunner::kCores, step); };
  ASSERT_TRUE(enqueue(0, 51).ok());
  ASSERT_TRUE(enqueue(1, 52).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(fails(51)));
  EXPECT_FALSE(is_queued(0));
  EXPECT_TRUE(is_queued(1));
  // What the step still sends is refused.
  EXPECT_EQ(enqueue(0, 51), fails(51));
  EXPECT_FALSE(is_queued(0));
  // The same if an outfeed fails.
  ASSERT_TRUE(enqueue(0, 53).ok());
  ASSERT_TRUE(ArmFault("transfer", 0, absl::ZeroDuration()).ok());
  const auto taking = runner_.Start(Feed("OutfeedDequeueTuple", 0, kFloat), "CPU:0", {}, {53});
  ASSERT_TRUE(taking.ok());
  EXPECT_TRUE(absl::IsInternal((*taking)->Wait().status()));
  EXPECT_FALSE(is_queued(0));
  // Ops that run eagerly are separate steps with the same number.
  ASSERT_TRUE(enqueue(0, 0).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(fails(0)));
  EXPECT_TRUE(is_queued(0));
}

}  // namespace
}  // namespace tf_tpu_ext
