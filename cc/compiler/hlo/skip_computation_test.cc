#include "cc/compiler/hlo/skip_computation.h"

#include <memory>

#include "cc/compiler/hlo/test_module.h"
#include "gtest/gtest.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

TEST(SkipComputationTest, ResultsAreParametersOrZeros) {
  const std::unique_ptr<xla::HloModule> module = ParseModule(R"(
HloModule step

sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT both = f32[] add(x, y)
}

ENTRY entry {
  unused = s32[7] parameter(0)
  variable = f32[4,4] parameter(1)
  product = f32[4,4] dot(variable, variable), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  all = f32[4,4] all-reduce(product), to_apply=sum
  sign = pred[4,4] compare(all, variable), direction=LT
  ROOT results = (pred[4,4], f32[4,4], f32[4,4]) tuple(sign, all, product)
}
)");
  // The first result has another type than its parameter.
  const std::unique_ptr<xla::HloModule> made = WithoutComputation({{0, 1}, {1, 1}}, *module);
  ExpectValid(made.get());
  const xla::HloComputation& entry = *made->entry_computation();
  EXPECT_EQ(entry.num_parameters(), 2);
  EXPECT_TRUE(xla::ShapeUtil::Equal(made->result_shape(), module->result_shape()));
  const xla::HloInstruction* root = entry.root_instruction();
  EXPECT_EQ(root->operand(0)->opcode(), xla::HloOpcode::kBroadcast);
  EXPECT_EQ(root->operand(1), entry.parameter_instruction(1));
  EXPECT_EQ(root->operand(2)->opcode(), xla::HloOpcode::kBroadcast);
  EXPECT_EQ(made->computation_count(), 1);
}

}  // namespace
}  // namespace tf_tpu_ext
