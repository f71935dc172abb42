// Tests the rules of products and of sums over replicas.
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/compiler/hlo/test_module.h"
#include "cc/compiler/replicas/batch_replicas.h"
#include "cc/compiler/replicas/batching_testing.h"
#include "gtest/gtest.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/literal.h"

namespace tf_tpu_ext {
namespace {

using xla::HloOpcode;
using xla::Literal;

class ProductRuleTest : public ::testing::TestWithParam<RuleCase> {};

TEST_P(ProductRuleTest, ComputesWhatEachReplicaDoes) { ExpectRuleHolds(GetParam()); }

const RuleCase kProducts[] = {
    {"DotOfOwnRowsAndWeights", R"(
  w = f32[3,4] parameter(0)
  x = f32[2,3] parameter(1)
  r = f32[2,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0})",
     "f32[2,4]", HloOpcode::kDot, 1},
    {"DotOfWeightsAndOwnColumns", R"(
  w = f32[5,2,3] parameter(0)
  x = f32[5,3,4] parameter(1)
  r = f32[5,2,4] dot(w, x), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1})",
     "f32[5,2,4]", HloOpcode::kDot, 1},
    {"DotWithBatchOfWeights", R"(
  w = f32[5,3,4] parameter(0)
  x = f32[5,2,3] parameter(1)
  r = f32[5,2,4] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1})",
     "f32[5,2,4]", HloOpcode::kDot, 1},
    {"DotOfOwn", R"(
  w = f32[2] parameter(0)
  x = f32[5,2,3] parameter(1)
  y = f32[5,3,4] parameter(2)
  r = f32[5,2,4] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1})",
     "f32[5,2,4]", HloOpcode::kDot, 1},
    {"ConvolutionWithWeights", R"(
  w = f32[3,2,4] parameter(0)
  x = f32[2,5,2] parameter(1)
  r = f32[2,3,4] convolution(x, w), window={size=3}, dim_labels=b0f_0io->b0f)",
     "f32[2,3,4]", HloOpcode::kConvolution, 1},
    {"ConvolutionWithOwnFilters", R"(
  x = f32[2,5,2] parameter(0)
  w = f32[3,2,4] parameter(1)
  r = f32[2,3,4] convolution(x, w), window={size=3}, dim_labels=b0f_0io->b0f)",
     "f32[2,3,4]", HloOpcode::kConvolution, 3},
};

INSTANTIATE_TEST_SUITE_P(Rules, ProductRuleTest, ::testing::ValuesIn(kProducts), NameOf);

class SumRuleTest : public ::testing::TestWithParam<RuleCase> {};

// The sum of `r` over the replicas is computed by XLA's interpreter and added up here.
TEST_P(SumRuleTest, ComputesTheSumOfWhatReplicasDo) {
  const RuleCase& rule = GetParam();
  const std::unique_ptr<xla::HloModule> alone = Step(rule.body, rule.result);
  std::vector<Literal> each;
  for (int j = 0; j < kReplicas; ++j) {
    each.push_back(std::move(Evaluate(*alone, ArgumentsOf(*alone, j))[0]));
  }
  Literal sum = each[0].Clone();
  for (int64_t i = 0; i < sum.element_count(); ++i) {
    for (int j = 1; j < kReplicas; ++j) sum.data<float>()[i] += each[j].data<float>()[i];
  }
  const std::unique_ptr<xla::HloModule> module = ParseModule(
      absl::StrCat(kReducers, "\nENTRY entry {\n", rule.body, "\n  s = ", rule.result,
                   " all-reduce(r), to_apply=add\n  ROOT all = (", rule.result, ") tuple(s)\n}\n"));
  const BatchedModule batched = BatchAll(*module);
  EXPECT_EQ(CountOps(*batched.module->entry_computation(), rule.opcode), rule.count)
      << batched.module->ToString();
  EXPECT_FALSE(batched.batched_results[0]);
  const std::vector<Literal> results =
      Evaluate(*batched.module, BatchedArguments(*module, batched));
  ASSERT_EQ(results.size(), 1u);
  ExpectNear(sum, results[0]);
}

const RuleCase kSums[] = {
    {"OfOwnArrays", R"(
  w = f32[4] parameter(0)
  r = f32[4] parameter(1))",
     "f32[4]", HloOpcode::kAdd, 2},
    {"OfOneArray", R"(
  w = f32[4] parameter(0)
  r = f32[4] negate(w))",
     "f32[4]", HloOpcode::kAdd, 2},
    {"OfProducts", R"(
  w = f32[2] parameter(0)
  x = f32[5,2,3] parameter(1)
  y = f32[5,2,4] parameter(2)
  r = f32[5,3,4] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1})",
     "f32[5,3,4]", HloOpcode::kAdd, 0},
    {"OfScaledProducts", R"(
  w = f32[] parameter(0)
  x = f32[2,3] parameter(1)
  y = f32[2,4] parameter(2)
  p = f32[3,4] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  t = f32[4,3] transpose(p), dimensions={1,0}
  n = f32[4,3] negate(t)
  rate = f32[4,3] broadcast(w), dimensions={}
  scaled = f32[4,3] multiply(rate, n)
  two = f32[] constant(2)
  twos = f32[4,3] broadcast(two), dimensions={}
  r = f32[4,3] divide(scaled, twos))",
     "f32[4,3]", HloOpcode::kAdd, 0},
    {"OfProductsByOwnFactors", R"(
  w = f32[] parameter(0)
  x = f32[2,3] parameter(1)
  y = f32[2,4] parameter(2)
  f = f32[3,4] parameter(3)
  p = f32[3,4] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  r = f32[3,4] multiply(p, f))",
     "f32[3,4]", HloOpcode::kAdd, 2},
    {"OfReductions", R"(
  w = f32[] parameter(0)
  x = f32[2,3] parameter(1)
  zero = f32[] constant(0)
  r = f32[3] reduce(x, zero), dimensions={0}, to_apply=add)",
     "f32[3]", HloOpcode::kAdd, 0},
    {"OfReductionsFromANumber", R"(
  w = f32[] parameter(0)
  x = f32[2,3] parameter(1)
  r = f32[3] reduce(x, w), dimensions={0}, to_apply=add)",
     "f32[3]", HloOpcode::kAdd, 2},
    {"OfLargest", R"(
  w = f32[] parameter(0)
  x = f32[2,3] parameter(1)
  zero = f32[] constant(0)
  r = f32[3] reduce(x, zero), dimensions={0}, to_apply=larger)",
     "f32[3]", HloOpcode::kAdd, 2},
    {"OfScatters", R"(
  w = f32[] parameter(0)
  i = s32[5,1] parameter(1)
  x = f32[5,4] parameter(2)
  zero = f32[] constant(0)
  zeros = f32[3,4] broadcast(zero), dimensions={}
  r = f32[3,4] scatter(zeros, i, x), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add)",
     "f32[3,4]", HloOpcode::kScatter, 1},
};

INSTANTIATE_TEST_SUITE_P(Rules, SumRuleTest, ::testing::ValuesIn(kSums), NameOf);

}  // namespace
}  // namespace tf_tpu_ext
