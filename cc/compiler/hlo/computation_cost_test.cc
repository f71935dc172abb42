#include "cc/compiler/hlo/computation_cost.h"

#include <vector>

#include "gtest/gtest.h"
#include "xla/hlo/builder/lib/arithmetic.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/hlo/builder/xla_computation.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

xla::Shape Floats(const std::vector<int64_t>& shape) {
  return xla::ShapeUtil::MakeShape(xla::F32, shape);
}

ComputationCost Cost(xla::XlaBuilder& builder, xla::XlaOp result) {
  return CostOf(builder.Build(result)->proto());
}

TEST(ComputationCostTest, CountsElementsThatAreNeeded) {
  xla::XlaBuilder b("step");
  xla::XlaOp x = xla::Parameter(&b, 0, Floats({3, 5}), "x");
  xla::Exp(x);  // for nobody
  const ComputationCost cost = Cost(b, xla::Tanh(x) + x);
  EXPECT_EQ(cost.all, 2 * 15);
  EXPECT_EQ(cost.in_loops, 0);
}

TEST(ComputationCostTest, AReductionCostsWhatItReads) {
  xla::XlaBuilder b("step");
  xla::XlaOp x = xla::Parameter(&b, 0, Floats({3, 5}), "x");
  xla::XlaOp sum = xla::Reduce(x, xla::ConstantR0<float>(&b, 0),
                               xla::CreateScalarAddComputation(xla::F32, &b), {1});
  EXPECT_EQ(Cost(b, sum).all, 15);
}

TEST(ComputationCostTest, ProductsAreFree) {
  xla::XlaBuilder b("step");
  xla::XlaOp x = xla::Parameter(&b, 0, Floats({3, 5}), "x");
  EXPECT_EQ(Cost(b, xla::Dot(xla::Transpose(x, {1, 0}), x)).all, 15);  // of the transpose
}

TEST(ComputationCostTest, LargeArraysCostMore) {
  const auto cost = [](int64_t size) {
    xla::XlaBuilder b("step");
    return Cost(b, xla::Tanh(xla::Parameter(&b, 0, Floats({size}), "x"))).all;
  };
  EXPECT_EQ(cost(128 * 1024), 128 * 1024);
  EXPECT_EQ(cost(200 * 1000), 300 * 1000);
}

TEST(ComputationCostTest, LoopsCountSeveralTimes) {
  const xla::Shape state = Floats({7});
  xla::XlaBuilder condition("condition"), body("body"), b("step");
  xla::XlaOp never = xla::Slice(xla::Parameter(&condition, 0, state, "state"), {0}, {1}, {1});
  xla::Gt(xla::Reshape(never, {}), xla::ConstantR0<float>(&condition, 0));
  xla::Tanh(xla::Parameter(&body, 0, state, "state"));
  xla::XlaOp x = xla::Parameter(&b, 0, state, "x");
  const ComputationCost cost = Cost(b, xla::Exp(xla::While(*condition.Build(), *body.Build(), x)));
  // In a round: the slice and the comparison of the condition, and the body.
  EXPECT_EQ(cost.in_loops, ComputationCost::kLoopRounds * (1 + 1 + 7));
  EXPECT_EQ(cost.all, cost.in_loops + 7);
}

}  // namespace
}  // namespace tf_tpu_ext
