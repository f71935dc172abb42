#include "cc/compiler/replicas/batch_replicas.h"

#include <string>
#include <vector>

#include "cc/compiler/hlo/collective_patterns.h"
#include "gtest/gtest.h"
#include "xla/hlo/builder/lib/arithmetic.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

constexpr int kReplicas = 6;
constexpr int kGroup = 3;

// A program of one replica, with parameter 0 mirrored and updated by result 0.
class Builder {
 public:
  Builder() : builder_("step") {}

  xla::XlaOp Parameter(int number, const std::vector<int64_t>& shape) {
    return xla::Parameter(&builder_, number, xla::ShapeUtil::MakeShape(xla::F32, shape),
                          "p" + std::to_string(number));
  }
  xla::XlaBuilder* builder() { return &builder_; }

  absl::StatusOr<StackedModule> Stack(const std::vector<xla::XlaOp>& results) {
    xla::XlaOp root = xla::Tuple(&builder_, results);
    auto computation = builder_.Build(root);
    EXPECT_TRUE(computation.ok()) << computation.status();
    StackOptions options;
    options.num_replicas = kReplicas;
    options.group_size = kGroup;
    options.mirrored_parameters = {0};
    options.updated_parameters = {{0, 0}};
    return StackReplicas(computation->proto(), options);
  }

 private:
  xla::XlaBuilder builder_;
};

const xla::HloComputationProto& Entry(const xla::HloModuleProto& module) {
  return module.computations(module.computations_size() - 1);
}

int Count(const xla::HloModuleProto& module, const std::string& opcode) {
  int count = 0;
  for (const auto& instruction : Entry(module).instructions())
    count += instruction.opcode() == opcode;
  return count;
}

std::vector<int64_t> ResultShape(const StackedModule& stacked, int result) {
  const auto& shape = stacked.module.host_program_shape().result().tuple_shapes(result);
  return {shape.dimensions().begin(), shape.dimensions().end()};
}

TEST(StackReplicasTest, OneProductServesAllRows) {
  Builder b;
  xla::XlaOp weights = b.Parameter(0, {4, 5}), rows = b.Parameter(1, {2, 4});
  auto stacked = b.Stack({weights, xla::Dot(rows, weights)});
  ASSERT_TRUE(stacked.ok()) << stacked.status();
  EXPECT_EQ(stacked->stacked_parameters, (std::vector<bool>{false, true}));
  EXPECT_EQ(stacked->stacked_results, (std::vector<bool>{false, true}));
  EXPECT_EQ(Count(stacked->module, "dot"), 1);
  EXPECT_EQ(ResultShape(*stacked, 0), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(ResultShape(*stacked, 1), (std::vector<int64_t>{kGroup, 2, 5}));
}

TEST(StackReplicasTest, TheSumOfProductsIsOneProduct) {
  Builder b;
  xla::XlaOp weights = b.Parameter(0, {4, 5});
  xla::XlaOp rows = b.Parameter(1, {2, 4}), errors = b.Parameter(2, {2, 5});
  xla::XlaOp gradient = xla::Dot(xla::Transpose(rows, {1, 0}), errors);
  auto stacked = b.Stack({weights - xla::CrossReplicaSum(gradient)});
  ASSERT_TRUE(stacked.ok()) << stacked.status();
  EXPECT_EQ(stacked->stacked_results, (std::vector<bool>{false}));
  EXPECT_EQ(Count(stacked->module, "all-reduce"), 1);
  for (const auto& instruction : Entry(stacked->module).instructions()) {
    if (instruction.opcode() != "all-reduce") continue;
    // Between the groups.
    EXPECT_TRUE(MeetsAllReplicas(instruction, kReplicas / kGroup));
    EXPECT_EQ(instruction.shape().dimensions_size(), 2);
  }
}

TEST(StackReplicasTest, AVariableThatComesToDifferIsStacked) {
  Builder b;
  xla::XlaOp state = b.Parameter(0, {4}), data = b.Parameter(1, {4});
  auto stacked = b.Stack({state + data});
  ASSERT_TRUE(stacked.ok()) << stacked.status();
  EXPECT_EQ(stacked->stacked_parameters, (std::vector<bool>{true, true}));
  EXPECT_EQ(stacked->stacked_results, (std::vector<bool>{true}));
}

TEST(StackReplicasTest, ANumberIsMirroredIfThatKeepsAVariableSo) {
  Builder b;
  xla::XlaOp weights = b.Parameter(0, {4}), rate = b.Parameter(1, {}), other = b.Parameter(2, {});
  xla::XlaOp sum = xla::CrossReplicaSum(weights * other);
  auto stacked = b.Stack({weights - sum * rate, other});
  ASSERT_TRUE(stacked.ok()) << stacked.status();
  EXPECT_FALSE(stacked->stacked_parameters[0]);
  EXPECT_FALSE(stacked->stacked_parameters[1]);
}

TEST(StackReplicasTest, SumsOfSomeReplicasAreRefused) {
  Builder b;
  xla::ReplicaGroup first, second;
  for (int i = 0; i < 3; ++i) {
    first.add_replica_ids(i);
    second.add_replica_ids(3 + i);
  }
  auto stacked = b.Stack({xla::CrossReplicaSum(b.Parameter(0, {4}), {first, second})});
  EXPECT_EQ(stacked.status().code(), absl::StatusCode::kUnimplemented);
}

TEST(StackReplicasTest, AnExchangeOfPiecesIsRefused) {
  Builder b;
  xla::ReplicaGroup everyone;
  for (int i = 0; i < kReplicas; ++i) everyone.add_replica_ids(i);
  xla::XlaOp pieces = xla::AllToAll(b.Parameter(1, {kReplicas, 4}), 0, 0, kReplicas, {everyone});
  auto stacked = b.Stack({b.Parameter(0, {4}), pieces});
  EXPECT_EQ(stacked.status().code(), absl::StatusCode::kUnimplemented);
}

TEST(StackReplicasTest, EffectsAreRefused) {
  Builder b;
  xla::XlaOp data = b.Parameter(0, {4});
  xla::CustomCall(b.builder(), "effect", {data}, xla::ShapeUtil::MakeShape(xla::F32, {4}), "",
                  /*has_side_effect=*/true);
  auto stacked = b.Stack({data});
  EXPECT_EQ(stacked.status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tf_tpu_ext
