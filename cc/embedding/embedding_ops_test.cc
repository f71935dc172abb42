// The host ops that configure an embedding, and load and retrieve its tables.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cc/base/tensor_testing.h"
#include "cc/embedding/current_embedding.h"
#include "cc/embedding/embedding_ops_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

TEST_F(EmbeddingOpsTest, ConfigureAndAsk) {
  const std::string config = Serialized(kConfig);
  const auto is_initialized = [](const std::string& config) {
    return OpRunner("IsTPUEmbeddingInitialized").Attr("config", config).Run();
  };
  EXPECT_FALSE((*is_initialized(""))[0].scalar<bool>()());
  Configure();
  EXPECT_TRUE((*is_initialized(""))[0].scalar<bool>()());
  EXPECT_TRUE((*is_initialized(config))[0].scalar<bool>()());
  EXPECT_FALSE((*is_initialized("another"))[0].scalar<bool>()());
  EXPECT_EQ(OpRunner("ConfigureTPUEmbedding").Attr("config", config).Run().status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(EmbeddingOpsTest, OneTableGoesInAndOut) {
  Configure();
  const Tensor parameters = MakeTensor<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor accumulators = MakeTensor<float>({.1f, .2f, .3f, .4f, .5f, .6f}, {3, 2});
  absl::Status status = ShardOp("LoadTPUEmbeddingAdagradParameters")
                            .Attr("table_name", "video")
                            .Input(parameters)
                            .Input(accumulators)
                            .Run()
                            .status();
  ASSERT_TRUE(status.ok()) << status;
  const auto retrieved =
      ShardOp("RetrieveTPUEmbeddingAdagradParameters").Attr("table_name", "video").Run();
  ASSERT_TRUE(retrieved.ok()) << retrieved.status();
  ASSERT_EQ(retrieved->size(), 2);
  EXPECT_EQ(ValuesOf<float>((*retrieved)[0]), ValuesOf<float>(parameters));
  EXPECT_EQ(ValuesOf<float>((*retrieved)[1]), ValuesOf<float>(accumulators));
  // The second of two shards has the last row.
  const auto shard = OpRunner("RetrieveTPUEmbeddingAdagradParameters")
                         .Attr("num_shards", 2)
                         .Attr("shard_id", 1)
                         .Attr("table_id", 0)
                         .Run();
  ASSERT_TRUE(shard.ok()) << shard.status();
  EXPECT_EQ(ValuesOf<float>((*shard)[0]), std::vector<float>({5, 6}));
}

TEST_F(EmbeddingOpsTest, TablesAreCheckedAgainstTheConfiguration) {
  const auto load = [](const TensorShape& shape, const std::string& table,
                       const std::string& config = "") {
    Tensor tensor(tensorflow::DT_FLOAT, shape);
    tensor.flat<float>().setZero();
    return ShardOp("LoadTPUEmbeddingAdagradParameters")
        .Attr("table_name", table)
        .Attr("config", config)
        .Input(tensor)
        .Input(tensor)
        .Run()
        .status();
  };
  EXPECT_EQ(load({3, 2}, "video").code(), absl::StatusCode::kFailedPrecondition);
  Configure();
  EXPECT_TRUE(load({3, 2}, "video").ok());
  EXPECT_TRUE(load({3, 2}, "video", Serialized(kConfig)).ok());
  EXPECT_EQ(load({3, 2}, "video", "another").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(load({3, 2}, "query").code(), absl::StatusCode::kNotFound);
  EXPECT_NE(load({2, 2}, "video").message().find("has the shape [3,2]"), std::string::npos);
  // The optimizer of this table has no slots.
  EXPECT_NE(load({2, 1}, "user").message().find("its optimizer has 0"), std::string::npos)
      << load({2, 1}, "user");
  const absl::Status status =
      ShardOp("RetrieveTPUEmbeddingAdagradParameters").Attr("table_name", "user").Run().status();
  EXPECT_NE(status.message().find("retrieves 1 slots of embedding table 'user'"), std::string::npos)
      << status;
}

TEST_F(EmbeddingOpsTest, AllTablesGoInAndOut) {
  Configure();
  const Tensor video = MakeTensor<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor user = MakeTensor<float>({7, 8}, {2, 1});
  const Tensor none(tensorflow::DT_FLOAT, {0, 0});
  OpRunner load = ShardOp("LoadAllTPUEmbeddingParameters");
  load.Attr("NumTables", 2).Attr("config", Serialized(kConfig));
  load.InputList({video, user});
  load.InputList({video, none});
  for (int slot = 2; slot <= 7; ++slot) load.InputList({none, none});
  const auto loaded = load.Run();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto retrieve = [](int tables) {
    return ShardOp("RetrieveAllTPUEmbeddingParameters")
        .Attr("NumTables", tables)
        .Attr("config", Serialized(kConfig))
        .Run();
  };
  const auto retrieved = retrieve(2);
  ASSERT_TRUE(retrieved.ok()) << retrieved.status();
  ASSERT_EQ(retrieved->size(), 16);
  EXPECT_EQ(ValuesOf<float>((*retrieved)[0]), ValuesOf<float>(video));
  EXPECT_EQ(ValuesOf<float>((*retrieved)[1]), ValuesOf<float>(user));
  EXPECT_EQ(ValuesOf<float>((*retrieved)[2]), ValuesOf<float>(video));
  // Slots that the optimizers don't have are empty.
  for (int i = 3; i < 16; ++i) EXPECT_EQ((*retrieved)[i].NumElements(), 0) << i;
  EXPECT_NE(retrieve(1).status().message().find("retrieves 1 embedding tables; the TPU is "
                                                "configured with 2"),
            std::string::npos);
}

TEST_F(EmbeddingOpsTest, AConfigurationMayComeInParts) {
  const std::string config = Serialized(kConfig);
  const auto partitioned = OpRunner("ExecuteTPUEmbeddingPartitioner").Attr("config", config).Run();
  ASSERT_TRUE(partitioned.ok()) << partitioned.status();
  const Tensor common = (*partitioned)[0];
  EXPECT_EQ(common.scalar<tensorflow::tstring>()(), config);
  const auto memory = OpRunner("ConfigureTPUEmbeddingMemory").Input(common).Run();
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto host = OpRunner("ConfigureTPUEmbeddingHost")
                        .Input(common)
                        .Input((*memory)[0])
                        .Attr("config", config)
                        .Run();
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_TRUE(Embedding().IsConfigured(config));
  EXPECT_TRUE(OpRunner("ConnectTPUEmbeddingHosts").InputList({(*host)[0]}).Run().ok());
  EXPECT_TRUE(OpRunner("FinalizeTPUEmbedding").Input(common).Input((*memory)[0]).Run().ok());
}

}  // namespace
}  // namespace tf_tpu_ext
