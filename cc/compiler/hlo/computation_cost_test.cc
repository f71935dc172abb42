#include "cc/compiler/hlo/computation_cost.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cc/compiler/hlo/test_module.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

ComputationCost Cost(absl::string_view entry) {
  return CostOf(*ParseModule(absl::StrCat(R"(
HloModule step

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

condition {
  x = f32[7] parameter(0)
  one = f32[1] slice(x), slice={[0:1]}
  scalar = f32[] reshape(one)
  zero = f32[] constant(0)
  ROOT goes_on = pred[] compare(scalar, zero), direction=GT
}

body {
  x = f32[7] parameter(0)
  ROOT y = f32[7] tanh(x)
}

ENTRY entry {
)",
                                          entry, "}\n")));
}

TEST(ComputationCostTest, CountsElementsThatAreNeeded) {
  const ComputationCost cost = Cost(R"(
  x = f32[3,5] parameter(0)
  for_nobody = f32[3,5] exponential(x)
  y = f32[3,5] tanh(x)
  ROOT z = f32[3,5] add(y, x)
)");
  EXPECT_EQ(cost.all, 2 * 15);
  EXPECT_EQ(cost.in_loops, 0);
}

TEST(ComputationCostTest, AReductionCostsWhatItReads) {
  EXPECT_EQ(Cost(R"(
  x = f32[3,5] parameter(0)
  zero = f32[] constant(0)
  ROOT y = f32[3] reduce(x, zero), dimensions={1}, to_apply=sum
)")
                .all,
            15);
}

TEST(ComputationCostTest, AnUpdateCostsWhatItWrites) {
  EXPECT_EQ(Cost(R"(
  x = f32[30,5] parameter(0)
  row = f32[1,5] parameter(1)
  zero = s32[] constant(0)
  ROOT y = f32[30,5] dynamic-update-slice(x, row, zero, zero)
)")
                .all,
            5);
}

TEST(ComputationCostTest, ProductsAreFree) {
  EXPECT_EQ(Cost(R"(
  x = f32[3,5] parameter(0)
  t = f32[5,3] transpose(x), dimensions={1,0}
  ROOT y = f32[5,5] dot(t, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
)")
                .all,
            15);  // of the transpose
}

TEST(ComputationCostTest, LargeArraysCostMore) {
  const auto cost = [](int64_t size) {
    return Cost(absl::StrCat("  x = f32[", size, "] parameter(0)\n  ROOT y = f32[", size,
                             "] tanh(x)\n"))
        .all;
  };
  EXPECT_EQ(cost(128 * 1024), 128 * 1024);
  EXPECT_EQ(cost(200 * 1000), 300 * 1000);
}

TEST(ComputationCostTest, LoopsCountSeveralTimes) {
  const ComputationCost cost = Cost(R"(
  x = f32[7] parameter(0)
  loop = f32[7] while(x), condition=condition, body=body
  ROOT y = f32[7] exponential(loop)
)");
  // Each iteration computes the slice and the comparison of the condition, and the body.
  EXPECT_EQ(cost.in_loops, ComputationCost::kLoopRounds * (1 + 1 + 7));
  EXPECT_EQ(cost.all, cost.in_loops + 7);
}

}  // namespace
}  // namespace tf_tpu_ext
