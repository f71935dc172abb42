// The host ops that queue batches for the cores.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cc/base/tensor_testing.h"
#include "cc/embedding/batch_message.h"
#include "cc/embedding/current_embedding.h"
#include "cc/embedding/embedding_ops_testing.h"
#include "cc/transfer/channels.h"
#include "cc/transfer/process_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

OpRunner Enqueue(const std::vector<Tensor>& ids, const std::string& mode, int64_t core) {
  OpRunner runner("EnqueueTPUEmbeddingIntegerBatch");
  runner.InputList(ids).Input(MakeScalar<tensorflow::tstring>(mode));
  runner.Attr("device_ordinal", core);
  return runner;
}

TEST_F(EmbeddingOpsTest, BatchesAreQueuedForTheirCore) {
  Configure();
  const std::vector<Tensor> ids = {MakeVector<int32_t>({2, 0}), MakeVector<int32_t>({1, 1})};
  for (const auto& [mode, training] : std::vector<std::pair<std::string, bool>>{
           {"train", true}, {"inference", false}, {"unspecified", true}}) {
    const auto queued = Enqueue(ids, mode, 1).Run();
    ASSERT_TRUE(queued.ok()) << queued.status();
    const std::optional<BatchMessage> message = Queued(1);
    ASSERT_TRUE(message.has_value());
    EXPECT_EQ(message->engine, Embedding().engine());
    EXPECT_EQ(message->batch->training, training) << mode;
    ASSERT_EQ(message->batch->outputs.size(), 2);
    EXPECT_EQ(message->batch->outputs[0].ids, std::vector<int64_t>({2, 0}));
    EXPECT_EQ(message->batch->outputs[1].ids, std::vector<int64_t>({1, 1}));
  }
}

TEST_F(EmbeddingOpsTest, WrongBatchesAreNotQueued) {
  const std::vector<Tensor> ids = {MakeVector<int32_t>({2, 0}), MakeVector<int32_t>({1, 1})};
  EXPECT_EQ(Enqueue(ids, "train", 0).Run().status().code(), absl::StatusCode::kFailedPrecondition);
  Configure();
  const auto message = [](OpRunner runner) { return std::string(runner.Run().status().message()); };
  EXPECT_NE(message(Enqueue(ids, "test", 0)).find("it must be 'train', 'inference'"),
            std::string::npos);
  EXPECT_NE(message(Enqueue(ids, "train", 1000)).find("names core 1000"), std::string::npos);
  EXPECT_NE(message(Enqueue(ids, "train", -1)).find("Place it on a TPU device"), std::string::npos);
  EXPECT_NE(message(Enqueue({ids[0]}, "train", 0)).find("has 1 features"), std::string::npos);
  EXPECT_NE(message(Enqueue({ids[0], ids[0]}, "train", 0)).find("has the id 2; table 'user'"),
            std::string::npos);
  EXPECT_EQ(TestProcess::Get().channels.Drain({kNoLaunch, kEmbeddingName, 0}), 0);
}

// Enqueues ids of two features, with the indices or splits and the weights of each.
OpRunner EnqueueFeatures(const std::string& op, const std::vector<Tensor>& indices,
                         const std::vector<Tensor>& ids, const std::vector<Tensor>& weights) {
  OpRunner runner(op);
  runner.InputList(indices).InputList(ids).InputList(weights);
  runner.Input(MakeScalar<tensorflow::tstring>("train"));
  runner.Attr("combiners", std::vector<std::string>{"mean", "sum"});
  return runner;
}

const Tensor& Nothing() {
  static const Tensor* const nothing = new Tensor(MakeVector<int32_t>({}));
  return *nothing;
}

// Expects what each kind of batch below says about the first feature: ids 0 and 2 for the first
// sample, id 1 for the second. With a mean, weights 1 and 3 become gains of 1/4 and 3/4.
void ExpectMeans(const EmbeddingBatch::Lookups& lookups) {
  EXPECT_EQ(lookups.rows, std::vector<int64_t>({0, 0, 1}));
  EXPECT_EQ(lookups.ids, std::vector<int64_t>({0, 2, 1}));
  EXPECT_EQ(lookups.gains, std::vector<float>({0.25, 0.75, 1}));
}

class EnqueueFeaturesTest : public EmbeddingOpsTest {
 protected:
  EnqueueFeaturesTest() { Configure(); }

  const Tensor matrix_ = MakeTensor<int32_t>({0, 0, 0, 1, 1, 0}, {3, 2});
  const Tensor splits_ = MakeVector<int32_t>({0, 2, 3});
  const Tensor ids_ = MakeVector<int32_t>({0, 2, 1});
  const Tensor weights_ = MakeVector<float>({1, 3, 5});
};

TEST_F(EnqueueFeaturesTest, SparseIdsSayTheirSample) {
  const auto queued =
      EnqueueFeatures("EnqueueTPUEmbeddingSparseBatch",
                      {matrix_, MakeTensor<int32_t>({1, 0}, {1, 2})},
                      {ids_, MakeVector<int32_t>({1})}, {weights_, MakeVector<float>({})})
          .Attr("device_ordinal", 0)
          .Run();
  ASSERT_TRUE(queued.ok()) << queued.status();
  const auto message = Queued(0);
  ASSERT_TRUE(message.has_value());
  ExpectMeans(message->batch->outputs[0]);
  EXPECT_EQ(message->batch->outputs[1].rows, std::vector<int64_t>({1}));
  EXPECT_EQ(message->batch->outputs[1].ids, std::vector<int64_t>({1}));
  EXPECT_EQ(message->batch->outputs[1].gains, std::vector<float>({1}));
}

TEST_F(EnqueueFeaturesTest, FeaturesOfTablesAreSparseOrRagged) {
  for (const bool ragged : {false, true}) {
    const Tensor& indices = ragged ? splits_ : matrix_;
    const auto enqueue = [&](int num_features) {
      return EnqueueFeatures(ragged ? "EnqueueTPUEmbeddingRaggedTensorBatch"
                                    : "EnqueueTPUEmbeddingSparseTensorBatch",
                             {indices, indices}, {ids_, MakeVector<int32_t>({0, 1, 1})},
                             {weights_, weights_})
          .Attr("device_ordinal", 0)
          .Attr("table_ids", std::vector<int>{0, 1})
          .Attr("num_features", std::vector<int>{1, num_features})
          .Run()
          .status();
    };
    const absl::Status status = enqueue(1);
    ASSERT_TRUE(status.ok()) << status;
    const auto message = Queued(0);
    ASSERT_TRUE(message.has_value());
    ExpectMeans(message->batch->outputs[0]);
    // Sums keep the weights.
    EXPECT_EQ(message->batch->outputs[1].gains, std::vector<float>({1, 3, 5}));
    EXPECT_EQ(enqueue(2).code(), absl::StatusCode::kUnimplemented);
    EXPECT_NE(enqueue(2).message().find("num_features=2"), std::string::npos) << enqueue(2);
  }
}

TEST_F(EnqueueFeaturesTest, EachFeatureOfAnArbitraryBatchIsOfItsOwnKind) {
  const auto enqueue = [this](const Tensor& first_indices, const Tensor& core) {
    return EnqueueFeatures("DynamicEnqueueTPUEmbeddingArbitraryTensorBatch",
                           {first_indices, Nothing()}, {ids_, MakeVector<int32_t>({1, 0})},
                           {weights_, MakeVector<float>({})})
        .Input(core)
        .Run()
        .status();
  };
  for (const Tensor& indices : {matrix_, splits_}) {
    const absl::Status status = enqueue(indices, MakeScalar<int32_t>(2));
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_FALSE(Queued(0).has_value());
    const auto message = Queued(2);
    ASSERT_TRUE(message.has_value());
    ExpectMeans(message->batch->outputs[0]);
    // A dense feature has an id for each row.
    EXPECT_EQ(message->batch->outputs[1].rows, std::vector<int64_t>({0, 1}));
    EXPECT_EQ(message->batch->outputs[1].ids, std::vector<int64_t>({1, 0}));
  }
  Tensor cube(tensorflow::DT_INT32, {1, 1, 1});
  cube.flat<int32_t>().setZero();
  const absl::Status status = enqueue(cube, MakeScalar<int32_t>(2));
  EXPECT_NE(status.message().find("have the shape [1,1,1]; their rank is at most two"),
            std::string::npos)
      << status;
  EXPECT_NE(enqueue(matrix_, MakeVector<int32_t>({0, 1})).message().find("must be a scalar"),
            std::string::npos);
}

TEST_F(EmbeddingOpsTest, ABatchThatFailsTakesThoseOfItsStepAlong) {
  Configure();
  const std::vector<Tensor> good = {MakeVector<int32_t>({2, 0}), MakeVector<int32_t>({1, 1})};
  const std::vector<Tensor> bad = {good[0], good[0]};
  // Step numbers that nothing else uses, because what a step sends after its failure is refused.
  for (int64_t step : {9001, 9002}) {
    ASSERT_TRUE(Enqueue(good, "train", 0).InStep(step).Run().ok());
  }
  EXPECT_FALSE(Enqueue(bad, "train", 1).InStep(9002).Run().ok());
  EXPECT_FALSE(Enqueue(good, "train", 2).InStep(9002).Run().ok());
  EXPECT_TRUE(Queued(0).has_value());
  EXPECT_FALSE(Queued(0).has_value());
  // Ops that run eagerly share a step number, but not a step.
  ASSERT_TRUE(Enqueue(good, "train", 0).Run().ok());
  EXPECT_FALSE(Enqueue(bad, "train", 1).Run().ok());
  EXPECT_TRUE(Queued(0).has_value());
}

}  // namespace
}  // namespace tf_tpu_ext
