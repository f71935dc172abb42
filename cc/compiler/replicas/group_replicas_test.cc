#include "cc/compiler/replicas/group_replicas.h"

#include "gtest/gtest.h"
#include "xla/hlo/builder/lib/arithmetic.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/hlo/builder/xla_computation.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

TEST(GroupSizeTest, LeavesAGroupForEachProcessor) {
  EXPECT_EQ(GroupSize(8, 2), 4);
  EXPECT_EQ(GroupSize(8, 3), 2);
  EXPECT_EQ(GroupSize(8, 1), 4);
  EXPECT_EQ(GroupSize(8, 8), 1);
  EXPECT_EQ(GroupSize(8, 64), 1);
  EXPECT_EQ(GroupSize(2, 1), 1);
  EXPECT_EQ(GroupSize(5, 2), 1);
  EXPECT_EQ(GroupSize(6, 2), 3);
  EXPECT_EQ(GroupSize(1, 2), 1);
}

// A loop that changes weights by what `rows` rows of each replica make of them.
xla::XlaComputation TrainingLoop(int64_t rows) {
  const xla::Shape number = xla::ShapeUtil::MakeShape(xla::S32, {});
  const xla::Shape weights = xla::ShapeUtil::MakeShape(xla::F32, {16, 16});
  const xla::Shape data = xla::ShapeUtil::MakeShape(xla::F32, {rows, 16});
  const xla::Shape state = xla::ShapeUtil::MakeTupleShape({number, weights, data});
  xla::XlaBuilder condition("condition"), body("body"), step("step");
  xla::Lt(xla::GetTupleElement(xla::Parameter(&condition, 0, state, "state"), 0),
          xla::ConstantR0<int32_t>(&condition, 3));
  xla::XlaOp before = xla::Parameter(&body, 0, state, "state");
  xla::XlaOp w = xla::GetTupleElement(before, 1), x = xla::GetTupleElement(before, 2);
  xla::XlaOp errors = xla::Tanh(xla::Dot(x, w));
  xla::XlaOp sum = xla::CrossReplicaSum(xla::Dot(xla::Transpose(x, {1, 0}), errors));
  xla::XlaOp i = xla::Add(xla::GetTupleElement(before, 0), xla::ConstantR0<int32_t>(&body, 1));
  xla::Tuple(&body, {i, xla::Sub(w, xla::Tanh(sum)), x});
  xla::XlaOp begin = xla::Tuple(
      &step, {xla::ConstantR0<int32_t>(&step, 0), xla::Parameter(&step, 0, weights, "weights"),
              xla::Parameter(&step, 1, data, "data")});
  xla::XlaOp end = xla::While(*condition.Build(), *body.Build(), begin);
  return *step.Build(xla::Tuple(&step, {xla::GetTupleElement(end, 1)}));
}

absl::StatusOr<StackedModule> StackLoop(int64_t rows, int num_replicas, int num_processors) {
  StackOptions options;
  options.num_replicas = num_replicas;
  options.mirrored_parameters = {0};
  options.updated_parameters = {{0, 0}};
  return GroupReplicas(TrainingLoop(rows).proto(), options, num_processors);
}

TEST(GroupReplicasTest, ALoopThatRepeatsMoreThanItDividesIsOneGroup) {
  for (int num_processors : {2, 64}) {
    auto stacked = StackLoop(/*rows=*/2, 8, num_processors);
    ASSERT_TRUE(stacked.ok()) << stacked.status();
    EXPECT_EQ(stacked->group_size, 8);
    for (const auto& computation : stacked->module.computations()) {
      for (const auto& instruction : computation.instructions()) {
        EXPECT_NE(instruction.opcode(), "all-reduce");
      }
    }
  }
}

TEST(GroupReplicasTest, ALoopThatDividesMoreHasAGroupForEachProcessor) {
  auto stacked = StackLoop(/*rows=*/100, 8, 2);
  ASSERT_TRUE(stacked.ok()) << stacked.status();
  EXPECT_EQ(stacked->group_size, 4);
  // Nothing is left to save where there is a processor for each.
  EXPECT_EQ(StackLoop(/*rows=*/100, 8, 64).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(GroupReplicasTest, LargeArraysOfSingleReplicasAreNotStacked) {
  EXPECT_EQ(StackLoop(/*rows=*/20'000, 8, 2).status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tf_tpu_ext
