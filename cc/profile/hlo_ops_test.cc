#include "cc/profile/hlo_ops.h"

#include <set>

#include "gtest/gtest.h"
#include "xla/hlo/parser/hlo_parser.h"

namespace tf_tpu_ext {
namespace {

constexpr char kLoop[] = R"(
HloModule loop
body {
  before = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(before), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[8,8] get-tuple-element(before), index=1
  product = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_type="MatMul" op_name="while/MatMul"}
  ROOT after = (s32[], f32[8,8]) tuple(next, product)
}
condition {
  state = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  limit = s32[] constant(5)
  ROOT goes_on = pred[] compare(i, limit), direction=LT
}
ENTRY entry {
  start = (s32[], f32[8,8]) parameter(0)
  ROOT loop = (s32[], f32[8,8]) while(start), condition=condition, body=body,
    metadata={op_name="XLA_Args" source_file="dummy_file_name" source_line=10}
}
)";

TEST(HloOpsTest, OpsInLoopsCountForThemselves) {
  auto module = xla::ParseAndReturnUnverifiedModule(kLoop);
  ASSERT_TRUE(module.ok()) << module.status();
  const HloOps ops = DescribeOps(**module);
  const HloOp& product = ops.at("product");
  EXPECT_EQ(product.flops, 2 * 8 * 8 * 8);
  EXPECT_EQ(product.bytes_accessed, 3 * 4 * 8 * 8);
  EXPECT_EQ(product.category, "dot");
  EXPECT_EQ(product.tf_op, "while/MatMul:MatMul");
  const HloOp& loop = ops.at("loop");
  EXPECT_EQ(loop.category, "while");
  EXPECT_EQ(loop.flops, 0);
  EXPECT_EQ(loop.bytes_accessed, 0);
}

TEST(HloOpsTest, APlaceholderIsNoSource) {
  auto module = xla::ParseAndReturnUnverifiedModule(kLoop);
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(DescribeOps(**module).at("loop").source, "");
}

TEST(HloOpsTest, EachOpHasASymbolOfItsOwn) {
  auto module = xla::ParseAndReturnUnverifiedModule(kLoop);
  ASSERT_TRUE(module.ok()) << module.status();
  std::set<int64_t> symbols;
  const HloOps ops = DescribeOps(**module);
  for (const auto& [name, op] : ops) symbols.insert(op.symbol);
  EXPECT_EQ(symbols.size(), ops.size());
  EXPECT_GT(*symbols.begin(), 0);
}

}  // namespace
}  // namespace tf_tpu_ext
