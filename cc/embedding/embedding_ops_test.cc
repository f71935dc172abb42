// The ops of the host: they configure an embedding, load and retrieve its tables and queue batches.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "cc/base/tensor_testing.h"
#include "cc/embedding/batch_message.h"
#include "cc/embedding/current_embedding.h"
#include "cc/transfer/channels.h"
#include "cc/transfer/process_testing.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/device_factory.h"
#include "tensorflow/core/framework/node_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/public/session_options.h"
#include "tensorflow/core/public/version.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

// Runs one op on a CPU.
class OpRunner {
 public:
  explicit OpRunner(const std::string& op) : builder_("the_op", op) {}

  OpRunner& Input(const Tensor& value) {
    builder_.Input("input", static_cast<int>(inputs_.size()), value.dtype());
    inputs_.push_back(value);
    return *this;
  }
  OpRunner& InputList(const std::vector<Tensor>& values) {
    std::vector<tensorflow::NodeDefBuilder::NodeOut> list;
    for (const Tensor& value : values) {
      list.emplace_back("input", static_cast<int>(inputs_.size()), value.dtype());
      inputs_.push_back(value);
    }
    builder_.Input(list);
    return *this;
  }
  template <typename T>
  OpRunner& Attr(const std::string& name, T value) {
    builder_.Attr(name, value);
    return *this;
  }

  OpRunner& InStep(int64_t step_id) {
    step_id_ = step_id;
    return *this;
  }

  absl::StatusOr<std::vector<Tensor>> Run() {
    tensorflow::NodeDef node;
    TF_RETURN_IF_ERROR(builder_.Finalize(&node));
    static auto* const device = tensorflow::DeviceFactory::NewDevice(
                                    "CPU", tensorflow::SessionOptions(), "/job:a/replica:0/task:0")
                                    .release();
    absl::Status status;
    std::unique_ptr<tensorflow::OpKernel> kernel = tensorflow::CreateOpKernel(
        tensorflow::DeviceType("CPU"), device, tensorflow::cpu_allocator(), node,
        TF_GRAPH_DEF_VERSION, &status);
    TF_RETURN_IF_ERROR(status);
    std::vector<tensorflow::TensorValue> values;
    for (Tensor& input : inputs_) values.emplace_back(&input);
    std::vector<tensorflow::AllocatorAttributes> outputs(kernel->num_outputs());
    tensorflow::OpKernelContext::Params params;
    params.device = device;
    params.op_kernel = kernel.get();
    params.inputs = values;
    params.output_attr_array = outputs.data();
    params.step_id = step_id_;
    tensorflow::OpKernelContext context(&params);
    if (tensorflow::AsyncOpKernel* async = kernel->AsAsync(); async != nullptr) {
      absl::Notification done;
      async->ComputeAsync(&context, [&] { done.Notify(); });
      done.WaitForNotification();
    } else {
      kernel->Compute(&context);
    }
    TF_RETURN_IF_ERROR(context.status());
    std::vector<Tensor> results;
    for (int i = 0; i < context.num_outputs(); ++i) results.push_back(*context.mutable_output(i));
    return results;
  }

 private:
  tensorflow::NodeDefBuilder builder_;
  std::vector<Tensor> inputs_;
  int64_t step_id_ = 0;
};

std::string Serialized(const std::string& text) {
  tensorflow::tpu::TPUEmbeddingConfiguration config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return config.SerializeAsString();
}

constexpr char kConfig[] =
    "mode: TRAINING num_tensor_cores: 2"
    " table_descriptor { name: 'video' vocabulary_size: 3 dimension: 2"
    "  optimization_parameters { adagrad {} learning_rate { constant: 1 } } }"
    " table_descriptor { name: 'user' vocabulary_size: 2 dimension: 1"
    "  optimization_parameters { stochastic_gradient_descent {} learning_rate { constant: 1 } } }"
    " feature_descriptor { table_id: 0 input_shape: 2 }"
    " feature_descriptor { table_id: 1 input_shape: 2 }";

// What the process's ops configure and use.
EmbeddingSlot& Embedding() {
  static auto* const made = [] {
    TestProcess& objects = TestProcess::Get();
    auto* const slot = new EmbeddingSlot(&objects.compute_pool);
    objects.process.embedding = slot;
    return slot;
  }();
  return *made;
}

class EmbeddingOpsTest : public testing::Test {
 protected:
  EmbeddingOpsTest() { Embedding(); }
  ~EmbeddingOpsTest() override {
    Embedding().Drop();
    for (int core = 0; core < 8; ++core) {
      TestProcess::Get().channels.Drain({kNoLaunch, kEmbeddingName, core});
    }
  }

  static void Configure() {
    const auto configured =
        OpRunner("ConfigureTPUEmbedding").Attr("config", Serialized(kConfig)).Run();
    ASSERT_TRUE(configured.ok()) << configured.status();
  }

  // The next batch of the core; nothing if none is queued.
  static std::optional<BatchMessage> Queued(int core) {
    std::optional<BatchMessage> message;
    const ChannelKey key{kNoLaunch, kEmbeddingName, core};
    TensorChannels& channels = TestProcess::Get().channels;
    const auto id = channels.Receive(key, [&](absl::StatusOr<TensorMessage> received) {
      if (received.ok()) message = *Unwrap(received->tensors);
    });
    if (!message.has_value()) channels.Cancel(key, id, absl::NotFoundError(""));
    return message;
  }

  static OpRunner ShardOp(const std::string& op) {
    OpRunner runner(op);
    runner.Attr("num_shards", 1).Attr("shard_id", 0);
    return runner;
  }
};

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

// Ids of two features, with the indices or splits and the weights of each.
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

// Of the first sample the ids 0 and 2, of the second one the id 1: what each kind of batch below
// says of the first feature. The mean of weights 1 and 3 are gains of 1/4 and 3/4.
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
  // Steps that nobody else has: what they send after the failure is refused.
  for (int64_t step : {9001, 9002}) {
    ASSERT_TRUE(Enqueue(good, "train", 0).InStep(step).Run().ok());
  }
  EXPECT_FALSE(Enqueue(bad, "train", 1).InStep(9002).Run().ok());
  EXPECT_FALSE(Enqueue(good, "train", 2).InStep(9002).Run().ok());
  EXPECT_TRUE(Queued(0).has_value());
  EXPECT_FALSE(Queued(0).has_value());
  // Ops that run eagerly share a number, but no step.
  ASSERT_TRUE(Enqueue(good, "train", 0).Run().ok());
  EXPECT_FALSE(Enqueue(bad, "train", 1).Run().ok());
  EXPECT_TRUE(Queued(0).has_value());
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
