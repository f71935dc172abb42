// The custom calls that a program's embedding ops are compiled to.
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "cc/base/call_attributes.h"
#include "cc/base/op_testing.h"
#include "cc/base/tensor_testing.h"
#include "cc/program/embedding_call.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/protobuf/tpu/tpu_embedding_configuration.pb.h"
#include "xla/service/hlo.pb.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

// A feature of two rows of three values, and one with rows [4, 5] of one value.
std::string Config(const std::string& more = "") {
  tensorflow::tpu::TPUEmbeddingConfiguration config;
  const std::string text =
      "mode: TRAINING num_tensor_cores: 2"
      " table_descriptor { name: 'video' vocabulary_size: 3 dimension: 3"
      "  optimization_parameters { adagrad {} learning_rate { constant: 1 } } }"
      " table_descriptor { name: 'user' vocabulary_size: 2 dimension: 1"
      "  optimization_parameters { adagrad {} learning_rate { constant: 1 } } }"
      " feature_descriptor { name: 'watched' table_id: 0 input_shape: 2 }"
      " feature_descriptor { table_id: 1 input_shape: 4 input_shape: 5 } " +
      more;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return config.SerializeAsString();
}

// Both features are split over two cores.
std::string SplitConfig() {
  return Config("spmd_sharding { enabled: true num_cores_per_replica: 2 }");
}

Tensor Zeros(const TensorShape& shape) {
  Tensor tensor(tensorflow::DT_FLOAT, shape);
  tensor.flat<float>().setZero();
  return tensor;
}

// The custom calls of a compiled op, by target.
using Calls = std::multimap<std::string, xla::HloInstructionProto>;

absl::StatusOr<Calls> CallsOf(OpTester& op) {
  TF_ASSIGN_OR_RETURN(const auto compiled, op.Compile());
  Calls calls;
  for (const auto& computation : compiled->computation->proto().computations()) {
    for (const auto& instruction : computation.instructions()) {
      if (instruction.custom_call_target().empty()) continue;
      calls.emplace(instruction.custom_call_target(), instruction);
    }
  }
  return calls;
}

std::vector<int64_t> SizesOf(const xla::ShapeProto& shape) {
  return {shape.dimensions().begin(), shape.dimensions().end()};
}

OpTester Receive(const std::string& config, int num_outputs = 2) {
  OpTester op("XlaRecvTPUEmbeddingActivations");
  op.InputFrom("XlaRecvTPUEmbeddingDeduplicationData", "config", config);
  op.Attr("num_tables", num_outputs).Attr("config", config);
  return op;
}

TEST(EmbeddingXlaKernelsTest, ActivationsComeFromACallInTheirShapes) {
  OpTester op = Receive(Config());
  const auto calls = CallsOf(op);
  ASSERT_TRUE(calls.ok()) << calls.status();
  ASSERT_EQ(calls->size(), 1);
  const xla::HloInstructionProto& call = calls->begin()->second;
  EXPECT_EQ(call.custom_call_target(), kReceiveActivationsTarget);
  EXPECT_TRUE(call.custom_call_has_side_effect());
  ASSERT_EQ(call.shape().tuple_shapes_size(), 3);
  EXPECT_EQ(SizesOf(call.shape().tuple_shapes(0)), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(SizesOf(call.shape().tuple_shapes(1)), (std::vector<int64_t>{4, 5, 1}));
  EXPECT_EQ(call.shape().tuple_shapes(1).element_type(), xla::F32);
  EXPECT_EQ(call.shape().tuple_shapes(2).element_type(), xla::TOKEN);
  const auto attributes = CallAttributes::Parse(call.backend_config());
  ASSERT_TRUE(attributes.ok()) << attributes.status();
  const auto decoded = DecodeReceiveActivationsCall(*attributes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->op, "the_op");
}

TEST(EmbeddingXlaKernelsTest, EachCoreOfAReplicaReceivesItsPart) {
  OpTester op = Receive(SplitConfig());
  const auto calls = CallsOf(op);
  ASSERT_TRUE(calls.ok()) << calls.status();
  const auto receive = calls->find(kReceiveActivationsTarget);
  ASSERT_NE(receive, calls->end());
  EXPECT_EQ(SizesOf(receive->second.shape().tuple_shapes(0)), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(receive->second.sharding().tuple_shardings(0).type(), xla::OpSharding::MANUAL);
  // The program sees the parts of both cores as one tensor.
  const auto [first, last] = calls->equal_range("SPMDShardToFullShape");
  ASSERT_EQ(std::distance(first, last), 2);
  std::vector<std::vector<int64_t>> wholes;
  for (auto whole = first; whole != last; ++whole) {
    wholes.push_back(SizesOf(whole->second.shape()));
    const xla::OpSharding& sharding = whole->second.sharding();
    EXPECT_EQ(sharding.type(), xla::OpSharding::OTHER);
    EXPECT_EQ(sharding.tile_assignment_dimensions(0), 2);
    for (int d = 1; d < sharding.tile_assignment_dimensions_size(); ++d) {
      EXPECT_EQ(sharding.tile_assignment_dimensions(d), 1);
    }
  }
  EXPECT_EQ(wholes, (std::vector<std::vector<int64_t>>{{4, 3}, {8, 5, 1}}));
}

OpTester Send(const std::string& config, const std::vector<Tensor>& gradients,
              const std::vector<Tensor>& rates) {
  OpTester op("XlaSendTPUEmbeddingGradients");
  op.InputList(gradients).InputList(rates);
  op.InputFrom("XlaRecvTPUEmbeddingDeduplicationData", "config", config);
  op.Attr("NumTables", static_cast<int>(gradients.size()));
  op.Attr("NumLearningRateTags", static_cast<int>(rates.size())).Attr("config", config);
  return op;
}

TEST(EmbeddingXlaKernelsTest, GradientsGoToACallBeforeTheRates) {
  OpTester op = Send(Config(), {Zeros({2, 3}), Zeros({20, 1})}, {MakeScalar<float>(1)});
  const auto calls = CallsOf(op);
  ASSERT_TRUE(calls.ok()) << calls.status();
  ASSERT_EQ(calls->size(), 1);
  const xla::HloInstructionProto& call = calls->begin()->second;
  EXPECT_EQ(call.custom_call_target(), kSendGradientsTarget);
  EXPECT_TRUE(call.custom_call_has_side_effect());
  // Gradients with the right number of elements may have any shape: the call gets the layout's
  // shape.
  ASSERT_EQ(call.operand_shapes_with_layout_size(), 4);
  EXPECT_EQ(SizesOf(call.operand_shapes_with_layout(0)), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(SizesOf(call.operand_shapes_with_layout(1)), (std::vector<int64_t>{4, 5, 1}));
  EXPECT_EQ(SizesOf(call.operand_shapes_with_layout(2)), std::vector<int64_t>());
  EXPECT_EQ(call.operand_shapes_with_layout(3).element_type(), xla::TOKEN);
  const auto attributes = CallAttributes::Parse(call.backend_config());
  ASSERT_TRUE(attributes.ok()) << attributes.status();
  const auto decoded = DecodeSendGradientsCall(*attributes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->op, "the_op");
  EXPECT_EQ(decoded->num_gradients, 2);
}

TEST(EmbeddingXlaKernelsTest, EachCoreOfAReplicaSendsItsPart) {
  OpTester op = Send(SplitConfig(), {Zeros({4, 3}), Zeros({8, 5, 1})}, {MakeScalar<float>(1)});
  const auto calls = CallsOf(op);
  ASSERT_TRUE(calls.ok()) << calls.status();
  const auto send = calls->find(kSendGradientsTarget);
  ASSERT_NE(send, calls->end());
  EXPECT_EQ(SizesOf(send->second.operand_shapes_with_layout(0)), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(SizesOf(send->second.operand_shapes_with_layout(1)), (std::vector<int64_t>{4, 5, 1}));
  // Both gradients are split, and each core gets the learning rate.
  EXPECT_EQ(calls->count("SPMDFullToShardShape"), 3);
}

void ExpectError(OpTester op, const std::string& part) {
  const absl::Status status = op.Compile().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
}

TEST(EmbeddingXlaKernelsTest, TensorsMustFitTheConfiguration) {
  ExpectError(Receive(Config(), 3),
              "Op the_op has 3 tensors of embeddings; its configuration has 2.");
  ExpectError(Send(Config(), {Zeros({2, 3})}, {}),
              "Op the_op has 1 tensors of embeddings; its configuration has 2.");
  ExpectError(Send(Config(), {Zeros({2, 2}), Zeros({20, 1})}, {}),
              "The gradient of feature 0 ('watched') has the shape [2,2]; its activations have "
              "f32[2,3].");
  // The whole replica's gradients are expected, not those of one core.
  ExpectError(Send(SplitConfig(), {Zeros({2, 3}), Zeros({8, 5, 1})}, {}), "f32[4,3]");
  ExpectError(Send(Config(), {Zeros({2, 3}), Zeros({20, 1})}, {MakeVector<float>({1, 2})}),
              "Learning rate 0 of the_op has the shape [2]; it must be a scalar.");
}

TEST(EmbeddingXlaKernelsTest, TheConfigurationMustBeOne) {
  ExpectError(Receive("nonsense"),
              "The config attribute of the_op is no TPUEmbeddingConfiguration");
  ExpectError(Receive(""), "has no tables");
}

TEST(EmbeddingXlaKernelsTest, TheGradientFunctionGetsTheActivationsAsTheyAre) {
  OpTester op("TPUEmbeddingActivations");
  const Tensor activations = MakeTensor<float>({1, 2, 3, 4}, {2, 2});
  op.Input(Zeros({})).Input(activations).Attr("table_id", 0).Attr("lookup_id", 0);
  const auto result = op.Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(ValuesOf<float>(*result), ValuesOf<float>(activations));
}

}  // namespace
}  // namespace tf_tpu_ext
