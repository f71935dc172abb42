// A running program's calls to the embedding engine, through XLA's custom calls.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cc/base/core_context.h"
#include "cc/base/custom_call_tester.h"
#include "cc/base/tensor_testing.h"
#include "cc/base/wait_monitor_testing.h"
#include "cc/embedding/batch.h"
#include "cc/embedding/batch_message.h"
#include "cc/embedding/current_embedding.h"
#include "cc/program/embedding_call.h"
#include "cc/transfer/channels.h"
#include "cc/transfer/process_testing.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

std::string SerializedConfig(const std::string& text) {
  tensorflow::tpu::TPUEmbeddingConfiguration config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return config.SerializeAsString();
}

// One table of three rows of two values, looked up by each of two cores with one id.
constexpr char kTwoCores[] =
    "mode: TRAINING num_tensor_cores: 2 table_descriptor { name: 'video' vocabulary_size: 3"
    " dimension: 2 optimization_parameters { stochastic_gradient_descent {}"
    " learning_rate { dynamic { tag: 0 } } } } feature_descriptor { table_id: 0 input_shape: 1 }";

// The monitor and the slot of this test program.
FakeMonitor& Monitor() {
  static auto* const monitor = new FakeMonitor;
  return *monitor;
}

EmbeddingSlot& Slot() {
  static auto* const slot = [] {
    TestProcess& objects = TestProcess::Get();
    auto* const made = new EmbeddingSlot(&objects.compute_pool);
    objects.process.embedding = made;
    objects.process.wait_monitor = &Monitor();
    return made;
  }();
  return *slot;
}

class EmbeddingCallsTest : public testing::Test {
 protected:
  EmbeddingCallsTest() {
    Slot();
    static int64_t launches = 5000;
    for (int core = 0; core < 2; ++core) {
      cores_[core].core = Core(core);
      cores_[core].launch_id = LaunchId(launches);
    }
    ++launches;
  }
  ~EmbeddingCallsTest() override {
    Slot().Drop();
    for (int core = 0; core < 2; ++core)
      TestProcess::Get().channels.Drain({kNoLaunch, kEmbeddingName, core});
  }

  void Configure() {
    ASSERT_TRUE(Slot().Configure(SerializedConfig(kTwoCores)).ok());
    engine_ = Slot().engine();
    const std::vector<float> rows = {0, 1, 10, 11, 20, 21};
    ASSERT_TRUE(engine_->Load(0, {0, 1, 2}, {absl::MakeConstSpan(rows)}).ok());
  }

  void Enqueue(int core, int64_t id) {
    auto batch = std::make_shared<EmbeddingBatch>();
    batch->training = true;
    batch->outputs = {{{0}, {id}, {1.0f}}};
    Send(core, Wrap({engine_, std::move(batch)}));
  }

  static void Send(int core, std::vector<Tensor> message) {
    TestProcess::Get().channels.Send(
        {kNoLaunch, kEmbeddingName, core}, std::move(message), kFeedCapacity,
        [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
  }

  static std::unique_ptr<CustomCallTester> Receiver(const TensorShape& shape = {1, 2}) {
    auto call = CustomCallTester::Create(kReceiveActivationsTarget,
                                         Encode(ReceiveActivationsCall{"receive"}), {},
                                         {Tensor(tensorflow::DT_FLOAT, shape)});
    EXPECT_TRUE(call.ok()) << call.status();
    return *std::move(call);
  }

  static std::unique_ptr<CustomCallTester> Sender(std::vector<Tensor> operands) {
    auto call = CustomCallTester::Create(kSendGradientsTarget, Encode(SendGradientsCall{"send", 1}),
                                         std::move(operands), {});
    EXPECT_TRUE(call.ok()) << call.status();
    return *std::move(call);
  }

  std::vector<float> Row(int64_t row) {
    std::vector<float> values(2);
    engine_->Retrieve(0, {row}, {values.data()});
    return values;
  }

  CoreContext cores_[2];
  std::shared_ptr<EmbeddingEngine> engine_;
};

TEST_F(EmbeddingCallsTest, AStepOfTwoCores) {
  Configure();
  for (int core = 0; core < 2; ++core) {
    Enqueue(core, 1);
    const auto receive = Receiver();
    ASSERT_TRUE(receive->Run(&cores_[core]).ok());
    EXPECT_EQ(ValuesOf<float>(receive->result(0)), std::vector<float>({10, 11}));
  }
  for (int core = 0; core < 2; ++core) {
    EXPECT_EQ(Row(1), std::vector<float>({10, 11}));
    // The gradients, then the learning rate.
    const auto send = Sender({MakeTensor<float>({1, core + 1.0f}, {1, 2}), MakeScalar<float>(0.5)});
    const absl::Status status = send->Run(&cores_[core]);
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(Row(1), std::vector<float>({10 - 0.5 * 2, 11 - 0.5 * 3}));
}

TEST_F(EmbeddingCallsTest, WaitsForABatchAndForTheUpdate) {
  Configure();
  const auto receive = Receiver();
  auto event = receive->Start(&cores_[0]);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_FALSE(event->IsAvailable());
  Enqueue(0, 2);
  tsl::BlockUntilReady(*event);
  EXPECT_TRUE(event->IsConcrete());
  Enqueue(1, 2);
  ASSERT_TRUE(Receiver()->Run(&cores_[1]).ok());

  const std::vector<Tensor> gradients = {MakeTensor<float>({1, 1}, {1, 2}), MakeScalar<float>(1)};
  ASSERT_TRUE(Sender(gradients)->Run(&cores_[0]).ok());
  Enqueue(0, 2);
  event = receive->Start(&cores_[0]);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_FALSE(event->IsAvailable());
  ASSERT_TRUE(Sender(gradients)->Run(&cores_[1]).ok());
  tsl::BlockUntilReady(*event);
  ASSERT_TRUE(event->IsConcrete());
  EXPECT_EQ(ValuesOf<float>(receive->result(0)), std::vector<float>({18, 19}));
}

TEST_F(EmbeddingCallsTest, AnAbortedLaunchWaitsNoLonger) {
  Configure();
  const auto receive = Receiver();
  auto event = receive->Start(&cores_[0]);
  ASSERT_TRUE(event.ok()) << event.status();
  TestProcess::Get().channels.Abort(cores_[0].launch_id.value(),
                                    absl::AbortedError("another core failed"));
  tsl::BlockUntilReady(*event);
  ASSERT_TRUE(event->IsError());
  EXPECT_EQ(event->GetError().code(), absl::StatusCode::kAborted);
  TestProcess::Get().channels.Forget(cores_[0].launch_id.value(), absl::AbortedError(""));
}

TEST_F(EmbeddingCallsTest, TheLimitEndsTheWaitForABatch) {
  Configure();
  const auto receive = Receiver();
  auto event = receive->Start(&cores_[1]);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_FALSE(event->IsAvailable());
  Monitor().Expire();
  tsl::BlockUntilReady(*event);
  ASSERT_TRUE(event->IsError());
  EXPECT_EQ(event->GetError().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(
      event->GetError().message().find("Op receive waited 1m on the embedding batches of core 1"),
      std::string::npos)
      << event->GetError();
}

TEST_F(EmbeddingCallsTest, TheLimitEndsTheWaitForAnUpdateAndSaysWhoIsMissing) {
  Configure();
  const auto receive = Receiver();
  for (int core = 0; core < 2; ++core) {
    Enqueue(core, 1);
    ASSERT_TRUE(receive->Run(&cores_[core]).ok());
  }
  const std::vector<Tensor> gradients = {MakeTensor<float>({1, 1}, {1, 2}), MakeScalar<float>(1)};
  ASSERT_TRUE(Sender(gradients)->Run(&cores_[0]).ok());
  // Lookups that did not have to wait leave nothing behind.
  EXPECT_EQ(Monitor().num_waits(), 0);
  Enqueue(0, 1);
  auto event = receive->Start(&cores_[0]);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_FALSE(event->IsAvailable());
  EXPECT_EQ(Monitor().num_waits(), 1);
  Monitor().Expire();
  tsl::BlockUntilReady(*event);
  ASSERT_TRUE(event->IsError());
  EXPECT_EQ(event->GetError().code(), absl::StatusCode::kDeadlineExceeded);
  for (const char* part : {"Op receive waited 1m: core 0 waits for the update of training step 1",
                           "has the gradients of cores [0]", "Find out which core enqueued"}) {
    EXPECT_NE(event->GetError().message().find(part), std::string::npos) << event->GetError();
  }
}

TEST_F(EmbeddingCallsTest, BatchesOfAnotherConfigurationAreRefused) {
  Configure();
  std::shared_ptr<EmbeddingEngine> former = engine_;
  Slot().Drop();
  Configure();
  Send(0, Wrap({former, std::make_shared<EmbeddingBatch>()}));
  EXPECT_EQ(Receiver()->Run(&cores_[0]).code(), absl::StatusCode::kInternal);
  Send(0, {MakeScalar<float>(1)});
  EXPECT_EQ(Receiver()->Run(&cores_[0]).code(), absl::StatusCode::kInternal);
}

TEST_F(EmbeddingCallsTest, ProgramsOfAnotherConfigurationAreRefused) {
  Configure();
  absl::Status status = Receiver({1, 3})->Run(&cores_[0]);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("was compiled for 3 values of feature 0; the TPU is configured "
                                  "for 2"),
            std::string::npos)
      << status;
  const auto two = CustomCallTester::Create(
      kReceiveActivationsTarget, Encode(ReceiveActivationsCall{"receive"}), {},
      {Tensor(tensorflow::DT_FLOAT, {1, 2}), Tensor(tensorflow::DT_FLOAT, {1, 2})});
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ((*two)->Run(&cores_[0]).code(), absl::StatusCode::kInvalidArgument);
  status = Sender({MakeTensor<int32_t>({1, 1}, {1, 2}), MakeScalar<float>(1)})->Run(&cores_[0]);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EmbeddingCallsTest, GradientsNeedABatchAndTheirRates) {
  Configure();
  const Tensor gradient = MakeTensor<float>({1, 1}, {1, 2});
  EXPECT_EQ(Sender({gradient, MakeScalar<float>(1)})->Run(&cores_[0]).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Sender({gradient})->Run(&cores_[0]).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EmbeddingCallsTest, NeedAnEmbeddingAndATpuProgram) {
  const Tensor gradient = MakeTensor<float>({1, 1}, {1, 2});
  EXPECT_EQ(Receiver()->Run(&cores_[0]).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Sender({gradient})->Run(&cores_[0]).code(), absl::StatusCode::kFailedPrecondition);
  Configure();
  EXPECT_EQ(Receiver()->Run(nullptr).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Sender({gradient})->Run(nullptr).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CurrentEmbeddingTest, IsConfiguredOnce) {
  EXPECT_EQ(Slot().engine(), nullptr);
  EXPECT_FALSE(Slot().IsConfigured(""));
  EXPECT_EQ(Slot().Require("op").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Slot().Configure("").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Slot().Configure("no configuration").code(), absl::StatusCode::kInvalidArgument);
  const std::string config = SerializedConfig(kTwoCores);
  ASSERT_TRUE(Slot().Configure(config).ok());
  EXPECT_TRUE(Slot().IsConfigured(""));
  EXPECT_TRUE(Slot().IsConfigured(config));
  EXPECT_FALSE(Slot().IsConfigured("another"));
  EXPECT_EQ(Slot().Configure(config).code(), absl::StatusCode::kFailedPrecondition);
  Slot().Drop();
  EXPECT_EQ(Slot().engine(), nullptr);
  EXPECT_TRUE(Slot().Configure(config).ok());
  Slot().Drop();
}

}  // namespace
}  // namespace tf_tpu_ext
