#include "cc/embedding/batch.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/embedding/layout.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

using Kind = FeatureValues::Kind;
using tensorflow::tpu::TPUEmbeddingConfiguration;

absl::StatusOr<EmbeddingLayout> MakeLayout(const std::string& text) {
  TPUEmbeddingConfiguration config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return EmbeddingLayout::Create(config);
}

// A feature of table 0 whose activations have the given shape.
EmbeddingLayout OneFeature(const std::string& shape) {
  auto layout = MakeLayout(
      "mode: TRAINING num_tensor_cores: 1"
      " table_descriptor { name: 'video' vocabulary_size: 8 dimension: 2 }"
      " feature_descriptor { name: 'watched' table_id: 0 " +
      shape + " }");
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *std::move(layout);
}

FeatureValues Sparse(int rank, std::vector<int64_t> indices, std::vector<int64_t> ids,
                     std::vector<float> weights = {}) {
  return {Kind::kSparse, std::move(indices), rank, std::move(ids), std::move(weights)};
}

FeatureValues Ragged(std::vector<int64_t> splits, std::vector<int64_t> ids) {
  return {Kind::kRagged, std::move(splits), 1, std::move(ids), {}};
}

FeatureValues Dense(std::vector<int64_t> ids) { return {Kind::kDense, {}, 1, std::move(ids), {}}; }

std::string ErrorOf(const absl::StatusOr<EmbeddingBatch>& batch) {
  EXPECT_EQ(batch.status().code(), absl::StatusCode::kInvalidArgument) << batch.status();
  return std::string(batch.status().message());
}

using Integers = std::vector<int64_t>;
using Floats = std::vector<float>;

TEST(BatchTest, CombinersGiveGains) {
  const EmbeddingLayout layout = OneFeature("input_shape: 2");
  const FeatureValues feature = Sparse(2, {0, 0, 0, 1, 1, 0}, {3, 4, 5}, {1, 3, 2});
  auto sum = BatchOfOutputs(layout, {feature}, {"sum"});
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(sum->outputs[0].rows, Integers({0, 0, 1}));
  EXPECT_EQ(sum->outputs[0].ids, Integers({3, 4, 5}));
  EXPECT_EQ(sum->outputs[0].gains, Floats({1, 3, 2}));
  EXPECT_EQ(BatchOfOutputs(layout, {feature}, {})->outputs[0].gains, Floats({1, 3, 2}));
  EXPECT_EQ(BatchOfOutputs(layout, {feature}, {"mean"})->outputs[0].gains, Floats({0.25, 0.75, 1}));
  const float root = std::sqrt(10.0f);
  EXPECT_EQ(BatchOfOutputs(layout, {feature}, {"sqrtn"})->outputs[0].gains,
            Floats({1 / root, 3 / root, 1}));
}

TEST(BatchTest, WeightsThatCancelOutGiveNothing) {
  const EmbeddingLayout layout = OneFeature("input_shape: 1");
  auto batch = BatchOfOutputs(layout, {Sparse(2, {0, 0, 0, 1}, {3, 4}, {1, -1})}, {"mean"});
  EXPECT_EQ(batch->outputs[0].gains, Floats({0, 0}));
}

TEST(BatchTest, SparseIndicesOfHigherRank) {
  const EmbeddingLayout layout = OneFeature("input_shape: 2 input_shape: 3");
  auto batch = BatchOfOutputs(layout, {Sparse(3, {0, 2, 0, 1, 1, 5, 1, 3, 0}, {1, 2, 3})}, {});
  ASSERT_TRUE(batch.ok()) << batch.status();
  // The last one is beyond the end of the sequence.
  EXPECT_EQ(batch->outputs[0].rows, Integers({2, 4}));
  EXPECT_EQ(batch->outputs[0].ids, Integers({1, 2}));
  auto flat = BatchOfOutputs(layout, {Sparse(2, {5, 0, 4, 1}, {1, 2})}, {});
  EXPECT_EQ(flat->outputs[0].rows, Integers({5, 4}));
}

TEST(BatchTest, RaggedRowsAreSamplesOrSequences) {
  const EmbeddingLayout layout = OneFeature("input_shape: 2 input_shape: 2");
  auto sequences = BatchOfOutputs(layout, {Ragged({0, 3, 4}, {1, 2, 3, 4})}, {});
  ASSERT_TRUE(sequences.ok()) << sequences.status();
  EXPECT_EQ(sequences->outputs[0].rows, Integers({0, 1, 2}));
  EXPECT_EQ(sequences->outputs[0].ids, Integers({1, 2, 4}));
  auto samples = BatchOfOutputs(layout, {Ragged({0, 3, 3, 3, 4}, {1, 2, 3, 4})}, {});
  EXPECT_EQ(samples->outputs[0].rows, Integers({0, 0, 0, 3}));
}

TEST(BatchTest, RefusesWhatDoesNotFit) {
  const EmbeddingLayout layout = OneFeature("input_shape: 2");
  EXPECT_NE(ErrorOf(BatchOfOutputs(layout, {Dense({1, 8})}, {}))
                .find("feature 0 ('watched') has "
                      "the id 8; table 'video' "
                      "has the rows 0 to 7"),
            std::string::npos);
  EXPECT_NE(ErrorOf(BatchOfOutputs(layout, {Dense({1, -1})}, {})).find("the id -1"),
            std::string::npos);
  EXPECT_NE(ErrorOf(BatchOfOutputs(layout, {Dense({1, 2, 3})}, {})).find("has 3 ids"),
            std::string::npos);
  EXPECT_NE(ErrorOf(BatchOfOutputs(layout, {}, {})).find("has 0 features; the configuration has 1"),
            std::string::npos);
  EXPECT_NE(ErrorOf(BatchOfOutputs(layout, {Sparse(2, {2, 0}, {1})}, {})).find("sample index 2"),
            std::string::npos);
  EXPECT_NE(ErrorOf(BatchOfOutputs(layout, {Sparse(2, {0, 0, 1}, {1})}, {})).find("3 numbers"),
            std::string::npos);
  EXPECT_NE(ErrorOf(BatchOfOutputs(layout, {Sparse(4, {0, 0, 0, 0}, {1})}, {})).find("of rank 4"),
            std::string::npos);
  EXPECT_NE(ErrorOf(BatchOfOutputs(layout, {Sparse(2, {0, 0}, {1}, {1, 2})}, {})).find("2 weights"),
            std::string::npos);
  EXPECT_NE(ErrorOf(BatchOfOutputs(layout, {Ragged({0, 1}, {1})}, {})).find("has 1 ragged rows"),
            std::string::npos);
  EXPECT_NE(ErrorOf(BatchOfOutputs(layout, {Ragged({0, 2, 1}, {1})}, {})).find("descend"),
            std::string::npos);
  EXPECT_NE(ErrorOf(BatchOfOutputs(layout, {Ragged({}, {})}, {})).find("ragged rows"),
            std::string::npos);
  EXPECT_NE(ErrorOf(BatchOfOutputs(layout, {Ragged({0, 1, 3}, {1})}, {})).find("from 0 to 3"),
            std::string::npos);
  EXPECT_NE(ErrorOf(BatchOfOutputs(layout, {Dense({1, 2})}, {"max"})).find("is 'max'"),
            std::string::npos);
  EXPECT_NE(ErrorOf(BatchOfOutputs(layout, {Dense({1, 2})}, {"sum", "sum"})).find("2 combiners"),
            std::string::npos);
}

// Two samples of three features of one table; the second feature is a sequence of two.
EmbeddingLayout OneTable() {
  auto layout = MakeLayout(
      "mode: TRAINING num_tensor_cores: 1 batch_size_per_tensor_core: 2"
      " table_descriptor { name: 'video' vocabulary_size: 8 dimension: 2 num_features: 4 }");
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *std::move(layout);
}

TEST(BatchTest, FeaturesShareTheirTablesOutput) {
  const std::vector<FeatureValues> features = {Sparse(2, {0, 0, 1, 0}, {1, 2}),
                                               Sparse(2, {0, 1, 1, 0, 1, 2}, {3, 4, 5}),
                                               Ragged({0, 0, 2}, {6, 7})};
  auto batch = BatchOfTableFeatures(OneTable(), features, {0, 0, 0}, {0, 2, 0}, {});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->outputs[0].ids, Integers({1, 2, 3, 4, 6, 7}));
  EXPECT_EQ(batch->outputs[0].rows, Integers({0, 4, 2, 5, 7, 7}));
}

TEST(BatchTest, RefusesFeaturesThatDoNotFitTheirTable) {
  const EmbeddingLayout layout = OneTable();
  const FeatureValues feature = Sparse(2, {0, 0}, {1});
  EXPECT_NE(ErrorOf(BatchOfTableFeatures(layout, {feature}, {0}, {}, {})).find("num_features=4"),
            std::string::npos);
  EXPECT_NE(ErrorOf(BatchOfTableFeatures(layout, {feature}, {1}, {}, {})).find("table_id 1"),
            std::string::npos);
  EXPECT_NE(ErrorOf(BatchOfTableFeatures(layout, {feature}, {0, 0}, {}, {})).find("2 table_ids"),
            std::string::npos);
}

TEST(LayoutTest, RefusesContradictions) {
  const std::string table = "table_descriptor { name: 'a' vocabulary_size: 8 dimension: 2 } ";
  const std::string feature = "feature_descriptor { table_id: 0 input_shape: 2 } ";
  const std::string rest = "mode: TRAINING num_tensor_cores: 1 ";
  EXPECT_TRUE(MakeLayout(absl::StrCat(table, feature, rest)).ok());
  for (const std::string& text : {
           absl::StrCat(feature, rest),
           absl::StrCat(table, rest),
           absl::StrCat(table, feature),
           absl::StrCat(table, feature, "mode: TRAINING"),
           absl::StrCat(table, table, feature, rest),
           absl::StrCat(table, feature, rest, "batch_size_per_tensor_core: 2"),
           absl::StrCat(table, "feature_descriptor { table_id: 1 input_shape: 2 } ", rest),
           absl::StrCat(table, "feature_descriptor { table_id: 0 } ", rest),
           absl::StrCat(table, "feature_descriptor { table_id: 0 input_shape: 0 } ", rest),
           absl::StrCat(table, feature, rest, "spmd_sharding { enabled: true }"),
           absl::StrCat("table_descriptor { name: 'a' dimension: 2 } ", feature, rest),
       }) {
    EXPECT_EQ(MakeLayout(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(LayoutTest, ShardsHaveTheRowsOfTheirHosts) {
  EmbeddingLayout layout = OneFeature("input_shape: 2");
  EXPECT_EQ(*layout.RowsOfShard(0, 1, 3), Integers({3, 4, 5}));
  EXPECT_EQ(*layout.RowsOfShard(0, 2, 3), Integers({6, 7}));
  layout.sharding = TPUEmbeddingConfiguration::MOD;
  EXPECT_EQ(*layout.RowsOfShard(0, 1, 3), Integers({1, 4, 7}));
  EXPECT_EQ(*layout.RowsOfShard(0, 2, 3), Integers({2, 5}));
  EXPECT_FALSE(layout.RowsOfShard(0, 3, 3).ok());
}

TEST(LayoutTest, FindsTablesByNameOrNumber) {
  const EmbeddingLayout layout = OneFeature("input_shape: 2");
  EXPECT_EQ(*layout.FindTable("video", -1), 0);
  EXPECT_EQ(*layout.FindTable("", 0), 0);
  EXPECT_EQ(layout.FindTable("user", -1).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(layout.FindTable("", 1).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(layout.FindTable("video", 0).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tf_tpu_ext
