#include "cc/embedding/engine.h"

#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/threadpool.h"

namespace tf_tpu_ext {
namespace {

// One table of four rows of one value, looked up by each of two cores with one id.
std::string TableOfFour(const std::string& more = "", const std::string& optimizer = "") {
  return "mode: TRAINING num_tensor_cores: 2 " + more +
         " table_descriptor { name: 'video' vocabulary_size: 4 dimension: 1"
         " optimization_parameters { stochastic_gradient_descent {} learning_rate { constant: 1 "
         "} " +
         optimizer + " } } feature_descriptor { table_id: 0 input_shape: 1 }";
}

class EngineTest : public testing::Test {
 protected:
  void Make(const std::string& text) {
    tensorflow::tpu::TPUEmbeddingConfiguration config;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
    auto engine =
        EmbeddingEngine::Create(config, [](const std::function<void()>& work) { work(); });
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    const std::vector<float> rows = {0, 10, 20, 30};
    ASSERT_TRUE(engine_->Load(0, {0, 1, 2, 3}, {absl::MakeConstSpan(rows)}).ok());
  }

  struct Lookup {
    float value = -1;
    std::optional<absl::Status> status;
    EmbeddingEngine::WaitId id = 0;
  };

  std::shared_ptr<Lookup> Receive(int core, int64_t id, bool training = true) {
    auto batch = std::make_shared<EmbeddingBatch>();
    batch->training = training;
    batch->outputs = {{{0}, {id}, {1.0f}}};
    auto lookup = std::make_shared<Lookup>();
    lookup->id =
        engine_->Receive(core, /*owner=*/7, batch, {&lookup->value},
                         [lookup](const absl::Status& status) { lookup->status = status; });
    return lookup;
  }

  absl::Status Send(int core, float gradient) { return engine_->Send(core, {&gradient}, {}); }

  std::vector<float> Table() {
    std::vector<float> values(4);
    engine_->Retrieve(0, {0, 1, 2, 3}, {values.data()});
    return values;
  }

  std::shared_ptr<EmbeddingEngine> engine_;
};

using Floats = std::vector<float>;

TEST_F(EngineTest, UpdatesWithTheGradientsOfAllCores) {
  Make(TableOfFour());
  EXPECT_EQ(Receive(0, 1)->value, 10);
  EXPECT_EQ(Receive(1, 1)->value, 10);
  EXPECT_TRUE(Send(1, 2).ok());
  EXPECT_EQ(Table(), Floats({0, 10, 20, 30}));
  EXPECT_TRUE(Send(0, 3).ok());
  EXPECT_EQ(Table(), Floats({0, 5, 20, 30}));
  EXPECT_EQ(Receive(0, 1, /*training=*/false)->value, 5);
}

TEST_F(EngineTest, AnEarlyCoreWaitsForTheUpdate) {
  Make(TableOfFour());
  Receive(0, 1);
  Receive(1, 2);
  EXPECT_TRUE(Send(0, 1).ok());
  auto next = Receive(0, 2);
  auto other = Receive(3, 2, /*training=*/false);
  EXPECT_FALSE(next->status.has_value());
  EXPECT_EQ(other->value, 20);
  EXPECT_NE(engine_->DescribeWait(0).find("training step 1, which has the gradients of cores [0]"),
            std::string::npos);
  EXPECT_TRUE(Send(1, 1).ok());
  ASSERT_TRUE(next->status.has_value());
  EXPECT_TRUE(next->status->ok());
  EXPECT_EQ(next->value, 19);
}

TEST_F(EngineTest, InferenceAfterTrainingSeesTheUpdate) {
  Make(TableOfFour());
  Receive(0, 1);
  Receive(1, 1);
  EXPECT_TRUE(Send(0, 1).ok());
  auto next = Receive(0, 1, /*training=*/false);
  EXPECT_FALSE(next->status.has_value());
  EXPECT_TRUE(Send(1, 1).ok());
  EXPECT_EQ(next->value, 8);
}

TEST_F(EngineTest, GradientsAndTrainingBatchesAnswerEachOther) {
  Make(TableOfFour());
  EXPECT_EQ(Send(0, 1).code(), absl::StatusCode::kFailedPrecondition);
  Receive(0, 1, /*training=*/false);
  EXPECT_EQ(Send(0, 1).code(), absl::StatusCode::kFailedPrecondition);
  Receive(0, 1);
  auto next = Receive(0, 1);
  ASSERT_TRUE(next->status.has_value());
  EXPECT_EQ(next->status->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(next->status->message().find("training=False"), std::string::npos);
}

TEST_F(EngineTest, WaitsEndByCancelAbortAndReset) {
  Make(TableOfFour());
  const auto wait = [this] {
    Receive(0, 1);
    Receive(1, 1);
    EXPECT_TRUE(Send(0, 1).ok());
    auto next = Receive(0, 1);
    EXPECT_FALSE(next->status.has_value());
    return next;
  };
  auto cancelled = wait();
  EXPECT_TRUE(engine_->Cancel(cancelled->id, absl::CancelledError("a")));
  EXPECT_FALSE(engine_->Cancel(cancelled->id, absl::CancelledError("b")));
  EXPECT_EQ(cancelled->status->message(), "a");
  engine_->Reset(absl::InternalError("c"));
  auto aborted = wait();
  engine_->Abort(8, absl::InternalError("d"));
  EXPECT_FALSE(aborted->status.has_value());
  engine_->Abort(7, absl::InternalError("e"));
  EXPECT_EQ(aborted->status->message(), "e");
  engine_->Reset(absl::InternalError("f"));
  auto reset = wait();
  engine_->Reset(absl::InternalError("g"));
  EXPECT_EQ(reset->status->message(), "g");
  EXPECT_EQ(Table(), Floats({0, 10, 20, 30}));
}

TEST_F(EngineTest, ACleanStepFollowsAReset) {
  Make(TableOfFour());
  Receive(0, 1);
  EXPECT_TRUE(Send(0, 1).ok());
  engine_->Reset(absl::InternalError("failed"));
  EXPECT_EQ(Receive(0, 1)->value, 10);
  EXPECT_EQ(Receive(1, 1)->value, 10);
  EXPECT_TRUE(Send(0, 1).ok());
  EXPECT_TRUE(Send(1, 1).ok());
  EXPECT_EQ(Table()[1], 8);
}

TEST_F(EngineTest, PipelinedStepsMissTheLastUpdate) {
  Make(TableOfFour("pipeline_execution_with_tensor_core: true"));
  const auto train = [this] {
    auto first = Receive(0, 1), second = Receive(1, 1);
    EXPECT_TRUE(Send(0, 1).ok());
    EXPECT_TRUE(Send(1, 1).ok());
    EXPECT_EQ(first->value, second->value);
    return first->value;
  };
  EXPECT_EQ(train(), 10);
  EXPECT_EQ(train(), 10);
  EXPECT_EQ(train(), 8);
  EXPECT_EQ(Table()[1], 4);
  EXPECT_EQ(train(), 4);
  EXPECT_EQ(Receive(0, 1, /*training=*/false)->value, 2);
}

TEST_F(EngineTest, WithoutAccumulationEveryCoreMakesAnUpdate) {
  Make(TableOfFour("",
                   "gradient_accumulation_status: DISABLED"
                   " clipping_limits { lower { value: 9 } upper { value: 11 } }"));
  Receive(0, 1);
  Receive(1, 1);
  EXPECT_TRUE(Send(0, 5).ok());
  EXPECT_TRUE(Send(1, -1).ok());
  // Row 1 belongs to core 1, whose update comes first: 10 + 1, then 11 - 5, clipped to 9.
  EXPECT_EQ(Table()[1], 9);
}

TEST_F(EngineTest, QuantizesWhatIsLookedUp) {
  Make(TableOfFour("",
                   "simulated_quantization { enabled: true num_buckets: 3 clipping_limits {"
                   " lower { value: 0 } upper { value: 24 } } }"));
  EXPECT_EQ(Receive(0, 1, false)->value, 12);
  EXPECT_EQ(Receive(0, 3, false)->value, 24);
  EXPECT_EQ(Table()[1], 10);
}

// Several ids for each row of the activations, with gains, compared with a loop that keeps the
// tables as plain arrays and computes the same sums.
TEST_F(EngineTest, StepsOfSeveralCoresAreWhatALoopComputes) {
  constexpr int kCores = 3, kRows = 7, kDim = 2, kSamples = 4, kSteps = 20;
  tensorflow::tpu::TPUEmbeddingConfiguration config;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "mode: TRAINING num_tensor_cores: 3 table_descriptor { name: 'video' vocabulary_size: 7"
      " dimension: 2 optimization_parameters { adagrad {} learning_rate { dynamic { tag: 0 } } } }"
      " feature_descriptor { table_id: 0 input_shape: 4 }",
      &config));
  auto created = EmbeddingEngine::Create(config, [](const std::function<void()>& work) { work(); });
  ASSERT_TRUE(created.ok()) << created.status();
  engine_ = *std::move(created);
  std::mt19937 random(17);
  std::uniform_int_distribution<int> any_row(0, kRows - 1), any_sample(0, kSamples - 1);
  std::uniform_real_distribution<float> any_value(-1, 1);
  Floats table(kRows * kDim), accumulators(kRows * kDim, 0.1f);
  for (float& value : table) value = any_value(random);
  std::vector<int64_t> all_rows(kRows);
  std::iota(all_rows.begin(), all_rows.end(), 0);
  ASSERT_TRUE(
      engine_->Load(0, all_rows, {absl::MakeConstSpan(table), absl::MakeConstSpan(accumulators)})
          .ok());

  for (int step = 0; step < kSteps; ++step) {
    Floats sums(kRows * kDim, 0);
    std::set<int64_t> touched;
    const float rate = 0.5f / static_cast<float>(step + 1);
    for (int core = 0; core < kCores; ++core) {
      auto batch = std::make_shared<EmbeddingBatch>();
      batch->training = true;
      EmbeddingBatch::Lookups& lookups = batch->outputs.emplace_back();
      Floats expected(kSamples * kDim, 0), activations(kSamples * kDim, -1);
      Floats gradients(kSamples * kDim);
      for (float& value : gradients) value = any_value(random);
      for (int k = 0; k < 6; ++k) {
        const int id = any_row(random), sample = any_sample(random);
        const float gain = any_value(random);
        lookups.ids.push_back(id);
        lookups.rows.push_back(sample);
        lookups.gains.push_back(gain);
        touched.insert(id);
        for (int i = 0; i < kDim; ++i) {
          expected[sample * kDim + i] += gain * table[id * kDim + i];
          sums[id * kDim + i] += gain * gradients[sample * kDim + i];
        }
      }
      absl::Status received = absl::UnknownError("not called");
      engine_->Receive(core, /*owner=*/1, batch, {activations.data()},
                       [&](absl::Status status) { received = std::move(status); });
      ASSERT_TRUE(received.ok()) << received;
      for (int i = 0; i < kSamples * kDim; ++i) {
        EXPECT_NEAR(activations[i], expected[i], 1e-5) << "step " << step << " core " << core;
      }
      ASSERT_TRUE(engine_->Send(core, {gradients.data()}, {rate}).ok());
    }
    // Rows that no core looked up stay unchanged, whatever their sums.
    for (int64_t row : touched) {
      for (int64_t i = row * kDim; i < (row + 1) * kDim; ++i) {
        accumulators[i] += sums[i] * sums[i];
        table[i] -= rate * sums[i] / std::sqrt(accumulators[i]);
      }
    }
  }
  Floats kept(kRows * kDim), kept_accumulators(kRows * kDim);
  engine_->Retrieve(0, all_rows, {kept.data(), kept_accumulators.data()});
  for (int i = 0; i < kRows * kDim; ++i) {
    EXPECT_NEAR(kept[i], table[i], 1e-4) << i;
    EXPECT_NEAR(kept_accumulators[i], accumulators[i], 1e-4) << i;
  }
}

TEST_F(EngineTest, AResetForgetsWhatCoresOwe) {
  Make(TableOfFour());
  Receive(0, 1);
  Receive(1, 1);
  EXPECT_TRUE(Send(0, 1).ok());
  engine_->Reset(absl::InternalError("failed"));
  // Core 1 no longer owes anything.
  EXPECT_EQ(Send(1, 1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Table(), Floats({0, 10, 20, 30}));
}

// Its work runs when the test says so.
class ScheduledEngineTest : public EngineTest {
 protected:
  void MakeScheduled(const std::string& text) {
    tensorflow::tpu::TPUEmbeddingConfiguration config;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
    auto created = EmbeddingEngine::Create(
        config, [this](std::function<void()> work) { scheduled_.push_back(std::move(work)); });
    ASSERT_TRUE(created.ok()) << created.status();
    engine_ = *std::move(created);
    const Floats rows = {0, 10, 20, 30};
    ASSERT_TRUE(engine_->Load(0, {0, 1, 2, 3}, {absl::MakeConstSpan(rows)}).ok());
  }

  void TrainOnce(int64_t id) {
    for (int core : {0, 1}) Receive(core, id);
    for (int core : {0, 1}) EXPECT_TRUE(Send(core, 1).ok());
  }

  // Returns how much work there was.
  size_t RunScheduled() {
    std::vector<std::function<void()>> work;
    work.swap(scheduled_);
    for (const auto& piece : work) piece();
    return work.size();
  }

  std::vector<std::function<void()>> scheduled_;
};

TEST_F(ScheduledEngineTest, NoCoreMakesAnUpdateOrWaitsForIt) {
  MakeScheduled(TableOfFour());
  Receive(0, 1);
  Receive(1, 1);
  EXPECT_TRUE(Send(0, 1).ok());
  const auto early = Receive(0, 1);
  EXPECT_TRUE(Send(1, 1).ok());
  const auto late = Receive(1, 1), cancelled = Receive(2, 1, /*training=*/false);
  EXPECT_TRUE(engine_->Cancel(cancelled->id, absl::CancelledError("")));
  EXPECT_FALSE(early->status.has_value() || late->status.has_value());
  EXPECT_EQ(RunScheduled(), 1);
  EXPECT_FALSE(early->status.has_value() || late->status.has_value());
  EXPECT_EQ(RunScheduled(), 2);
  ASSERT_TRUE(early->status.has_value() && late->status.has_value());
  EXPECT_EQ(early->value, 8);
  EXPECT_EQ(late->value, 8);
}

TEST_F(ScheduledEngineTest, ACompleteStepIsUpdatedAfterAReset) {
  MakeScheduled(TableOfFour());
  TrainOnce(1);
  engine_->Reset(absl::InternalError("failed"));
  const auto next = Receive(0, 1);
  EXPECT_FALSE(next->status.has_value());
  RunScheduled();
  RunScheduled();
  EXPECT_EQ(next->value, 8);
}

TEST_F(ScheduledEngineTest, AFlushedUpdateIsSeenByAllThatCome) {
  MakeScheduled(TableOfFour("pipeline_execution_with_tensor_core: true"));
  TrainOnce(1);
  EXPECT_EQ(RunScheduled(), 0);
  const auto inference = Receive(0, 1, /*training=*/false), training = Receive(1, 1);
  EXPECT_EQ(RunScheduled(), 1);
  EXPECT_EQ(RunScheduled(), 2);
  EXPECT_EQ(inference->value, 8);
  EXPECT_EQ(training->value, 8);
}

// Host threads load and retrieve while cores train: whatever the order, nothing is lost.
TEST_F(EngineTest, ThreadsOfTheHostWaitForTheirTurn) {
  constexpr int kSteps = 200;
  tensorflow::tpu::TPUEmbeddingConfiguration config;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(TableOfFour(), &config));
  tensorflow::thread::ThreadPool pool(tensorflow::Env::Default(), "engine_test", 3);
  auto created = EmbeddingEngine::Create(
      config, [&pool](std::function<void()> work) { pool.Schedule(std::move(work)); });
  ASSERT_TRUE(created.ok()) << created.status();
  engine_ = *std::move(created);
  absl::BlockingCounter cores(2);
  std::atomic<bool> trains{true};
  for (int core : {0, 1}) {
    pool.Schedule([this, core, &cores] {
      for (int step = 0; step < kSteps; ++step) {
        auto batch = std::make_shared<EmbeddingBatch>();
        batch->training = true;
        batch->outputs = {{{0}, {1}, {1.0f}}};
        float value = -1;
        absl::Notification received;
        engine_->Receive(core, /*owner=*/7, batch, {&value},
                         [&received](const absl::Status& status) {
                           EXPECT_TRUE(status.ok()) << status;
                           received.Notify();
                         });
        received.WaitForNotification();
        EXPECT_EQ(value, -2.0f * static_cast<float>(step));
        EXPECT_TRUE(Send(core, 1).ok());
      }
      cores.DecrementCount();
    });
  }
  std::thread host([&] {
    for (float value = 0; trains; ++value) {
      EXPECT_TRUE(engine_->Load(0, {2}, {{&value, 1}}).ok());
      const Floats table = Table();
      EXPECT_EQ(table[2], value);
    }
  });
  cores.Wait();
  trains = false;
  host.join();
  EXPECT_EQ(Table()[1], -2.0f * kSteps);
}

TEST_F(EngineTest, RefusesMissingLearningRates) {
  Make(
      "mode: TRAINING num_tensor_cores: 2 table_descriptor { name: 'video' vocabulary_size: 4"
      " dimension: 1 optimization_parameters { stochastic_gradient_descent {}"
      " learning_rate { dynamic { tag: 0 } } } }"
      " feature_descriptor { table_id: 0 input_shape: 1 }");
  Receive(0, 1);
  EXPECT_EQ(Send(0, 1).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EngineTest, RefusesToLoadOtherSlots) {
  Make(TableOfFour());
  const std::vector<float> rows = {0, 1};
  EXPECT_EQ(engine_->Load(0, {0, 1}, {rows, rows}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine_->Load(0, {0}, {rows}).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tf_tpu_ext
