#include "cc/embedding/layout.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tensorflow/core/protobuf/tpu/tpu_embedding_configuration.pb.h"

namespace tf_tpu_ext {
namespace {

absl::StatusOr<EmbeddingLayout> Create(const std::string& text) {
  tensorflow::tpu::TPUEmbeddingConfiguration config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return EmbeddingLayout::Create(config);
}

constexpr char kStart[] = "mode: TRAINING num_tensor_cores: 4 ";
constexpr char kTable[] = "table_descriptor { name: 'video' vocabulary_size: 10 dimension: 3 } ";
constexpr char kFeature[] = "feature_descriptor { table_id: 0 input_shape: 5 } ";

EmbeddingLayout LayoutOf(const std::string& more) {
  auto layout = Create(std::string(kStart) + kTable + kFeature + more);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *std::move(layout);
}

TEST(EmbeddingLayoutTest, AnOutputForEachFeature) {
  const EmbeddingLayout layout = LayoutOf(
      "table_descriptor { name: 'user' vocabulary_size: 7 dimension: 2 }"
      " feature_descriptor { table_id: 1 input_shape: 5 input_shape: 4 name: 'friends' }");
  EXPECT_TRUE(layout.by_feature);
  EXPECT_EQ(layout.num_cores, 4);
  EXPECT_EQ(layout.cores_per_replica, 1);
  EXPECT_FALSE(layout.pipelined);
  ASSERT_EQ(layout.tables.size(), 2);
  EXPECT_EQ(layout.tables[1].rows, 7);
  EXPECT_EQ(layout.tables[1].dim, 2);
  ASSERT_EQ(layout.outputs.size(), 2);
  EXPECT_EQ(layout.outputs[0].name, "feature 0");
  EXPECT_EQ(layout.outputs[0].rows, 5);
  EXPECT_EQ(layout.outputs[1].name, "feature 1 ('friends')");
  EXPECT_EQ(layout.outputs[1].table, 1);
  EXPECT_EQ(layout.outputs[1].shape, std::vector<int64_t>({5, 4}));
  EXPECT_EQ(layout.outputs[1].rows, 20);
}

TEST(EmbeddingLayoutTest, AnOutputForEachTableIfThereAreNoFeatures) {
  const auto layout = Create(
      "mode: INFERENCE num_tensor_cores: 2 batch_size_per_tensor_core: 6 "
      "pipeline_execution_with_tensor_core: true "
      "spmd_sharding { enabled: true num_cores_per_replica: 2 } "
      "table_descriptor { name: 'video' vocabulary_size: 10 dimension: 3 num_features: 4 }");
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_FALSE(layout->by_feature);
  EXPECT_TRUE(layout->pipelined);
  EXPECT_EQ(layout->cores_per_replica, 2);
  ASSERT_EQ(layout->outputs.size(), 1);
  EXPECT_EQ(layout->outputs[0].name, "table 'video'");
  EXPECT_EQ(layout->outputs[0].shape, std::vector<int64_t>({24}));
}

TEST(EmbeddingLayoutTest, RefusesContradictions) {
  const std::string start = kStart, table = kTable, feature = kFeature;
  const std::pair<std::string, const char*> cases[] = {
      {start, "has no tables"},
      {start + table + table + feature, "Give every table a name of its own"},
      {start + "table_descriptor { vocabulary_size: 1 dimension: 1 }", "names table 0 ''"},
      {start + "table_descriptor { name: 'a' vocabulary_size: 0 dimension: 3 }" + feature,
       "gives table 'a' 0 rows of 3 values"},
      {start + table, "describes no features, and has batch_size_per_tensor_core=0"},
      {start + table + feature + "batch_size_per_tensor_core: 3",
       "describes features and has batch_size_per_tensor_core=3"},
      {start + "table_descriptor { name: 'a' vocabulary_size: 1 dimension: 1 num_features: 2 }" +
           feature,
       "describes features and gives table 'a' num_features=2"},
      {start + table + "feature_descriptor { table_id: 1 input_shape: 5 }", "from table 1"},
      {start + table + "feature_descriptor { table_id: -1 input_shape: 5 }", "from table -1"},
      {start + table + "feature_descriptor { table_id: 0 }", "gives feature 0 no input_shape"},
      {start + table + "feature_descriptor { table_id: 0 input_shape: 0 }", "a dimension of 0"},
      {start + table + feature + "table_descriptor { name: 'b' vocabulary_size: 1 dimension: 1 }",
       "has no feature for table 'b'"},
      {"num_tensor_cores: 4 " + table + feature, "has no mode"},
      {"mode: TRAINING " + table + feature, "has num_tensor_cores=0"},
      {start + table + feature + "spmd_sharding { enabled: true }",
       "enables SPMD with num_cores_per_replica=0"},
  };
  for (const auto& [text, message] : cases) {
    const absl::Status status = Create(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(message), std::string::npos) << status;
  }
}

TEST(EmbeddingLayoutTest, FindsTablesByNameOrNumber) {
  const EmbeddingLayout layout = LayoutOf(
      "table_descriptor { name: 'user' vocabulary_size: 7 dimension: 2 }"
      " feature_descriptor { table_id: 1 input_shape: 5 }");
  EXPECT_EQ(*layout.FindTable("user", -1), 1);
  EXPECT_EQ(*layout.FindTable("", 0), 0);
  EXPECT_EQ(layout.FindTable("", -1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(layout.FindTable("user", 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(layout.FindTable("", 2).status().code(), absl::StatusCode::kNotFound);
  const absl::Status unknown = layout.FindTable("query", -1).status();
  EXPECT_EQ(unknown.message(),
            "There is no embedding table query; the TPU was configured with 'video', 'user'.");
}

TEST(EmbeddingLayoutTest, ShardsHaveEveryRowOnce) {
  for (const char* strategy : {"DIV_DEFAULT", "MOD"}) {
    const EmbeddingLayout layout = LayoutOf(std::string("sharding_strategy: ") + strategy);
    for (int64_t num_shards : {1, 3, 4, 10, 12}) {
      std::vector<int> seen(10, 0);
      for (int64_t shard = 0; shard < num_shards; ++shard) {
        const auto rows = layout.RowsOfShard(0, shard, num_shards);
        ASSERT_TRUE(rows.ok()) << rows.status();
        // The numbers of rows of two shards differ by at most one.
        EXPECT_GE(rows->size(), 10 / num_shards);
        EXPECT_LE(rows->size(), 10 / num_shards + 1);
        for (int64_t row : *rows) ++seen[row];
      }
      EXPECT_EQ(seen, std::vector<int>(10, 1)) << strategy << " " << num_shards;
    }
  }
}

TEST(EmbeddingLayoutTest, ShardsFollowTheStrategy) {
  const EmbeddingLayout by_division = LayoutOf("sharding_strategy: DIV_DEFAULT");
  EXPECT_EQ(*by_division.RowsOfShard(0, 0, 3), std::vector<int64_t>({0, 1, 2, 3}));
  EXPECT_EQ(*by_division.RowsOfShard(0, 2, 3), std::vector<int64_t>({7, 8, 9}));
  const EmbeddingLayout by_modulus = LayoutOf("sharding_strategy: MOD");
  EXPECT_EQ(*by_modulus.RowsOfShard(0, 0, 3), std::vector<int64_t>({0, 3, 6, 9}));
  EXPECT_EQ(*by_modulus.RowsOfShard(0, 2, 3), std::vector<int64_t>({2, 5, 8}));
  for (const auto& [shard, count] : {std::pair<int, int>{3, 3}, {-1, 3}, {0, 0}}) {
    EXPECT_EQ(by_modulus.RowsOfShard(0, shard, count).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tf_tpu_ext
