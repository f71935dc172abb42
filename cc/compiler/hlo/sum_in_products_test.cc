#include "cc/compiler/hlo/sum_in_products.h"

#include <memory>
#include <string>

#include "absl/strings/str_replace.h"
#include "cc/compiler/hlo/test_module.h"
#include "gtest/gtest.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/literal.h"
#include "xla/literal_util.h"

namespace tf_tpu_ext {
namespace {

using xla::HloOpcode;

// The batch is dimensions 2 and 0 of one side, 0 and 1 of the other.
constexpr char kSum[] = R"(
HloModule sum

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}

ENTRY entry {
  x = f32[2,5,3,4] parameter(0)
  y = f32[3,2,5,6] parameter(1)
  products = f32[3,2,4,6] dot(x, y), lhs_batch_dims={2,0}, rhs_batch_dims={0,1}, lhs_contracting_dims={1}, rhs_contracting_dims={2}
  zero = f32[] constant(0)
  ROOT total = f32[4,6] reduce(products, zero), dimensions={0,1}, to_apply=add
}
)";

xla::Literal Count(const xla::Shape& shape) {
  xla::Literal literal = xla::Literal::CreateFromShape(shape);
  float next = 0;
  EXPECT_TRUE(
      literal.Populate<float>([&](absl::Span<const int64_t>) { return next = next * 0.9F + 1; })
          .ok());
  return literal;
}

void ExpectOneProduct(const std::string& text) {
  const std::unique_ptr<xla::HloModule> module = ParseModule(text);
  const xla::Literal expected = ValueOf(*module, Count);
  ASSERT_TRUE(SumInProducts(module.get()).ok());
  ExpectValid(module.get());
  EXPECT_EQ(module->entry_computation()->root_instruction()->opcode(), HloOpcode::kDot);
  const xla::Literal value = ValueOf(*module, Count);
  ASSERT_EQ(value.shape(), expected.shape());
  const auto values = value.data<float>();
  for (int i = 0; i < static_cast<int>(values.size()); ++i) {
    EXPECT_NEAR(values[i], expected.data<float>()[i], 1e-5 * expected.data<float>()[i]) << i;
  }
}

void ExpectUnchanged(const std::string& text) {
  const std::unique_ptr<xla::HloModule> module = ParseModule(text);
  const std::string before = module->ToString();
  ASSERT_TRUE(SumInProducts(module.get()).ok());
  EXPECT_EQ(module->ToString(), before);
}

TEST(SumInProductsTest, SumOverTheWholeBatch) { ExpectOneProduct(kSum); }

TEST(SumInProductsTest, SumOverAPartOfTheBatch) {
  ExpectOneProduct(absl::StrReplaceAll(
      kSum, {{"ROOT total = f32[4,6]", "ROOT total = f32[3,4,6]"}, {"={0,1}, to", "={1}, to"}}));
  ExpectOneProduct(absl::StrReplaceAll(
      kSum, {{"ROOT total = f32[4,6]", "ROOT total = f32[2,4,6]"}, {"={0,1}, to", "={0}, to"}}));
}

TEST(SumInProductsTest, WhatIsNotASumOverTheBatchStays) {
  // A sum that includes rows of the products.
  ExpectUnchanged(absl::StrReplaceAll(
      kSum, {{"ROOT total = f32[4,6]", "ROOT total = f32[2,6]"}, {"={0,1}, to", "={0,2}, to"}}));
  ExpectUnchanged(absl::StrReplaceAll(kSum, {{"add(a, b)", "maximum(a, b)"}}));
  ExpectUnchanged(absl::StrReplaceAll(kSum, {{"constant(0)", "constant(1)"}}));
}

TEST(SumInProductsTest, ProductsThatOthersUseStay) {
  ExpectUnchanged(absl::StrReplaceAll(
      kSum, {{"ROOT total", "total"},
             {"to_apply=add\n}",
              "to_apply=add\n  ROOT both = (f32[3,2,4,6], f32[4,6]) tuple(products, total)\n}"}}));
}

}  // namespace
}  // namespace tf_tpu_ext
