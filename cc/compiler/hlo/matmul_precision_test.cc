#include "cc/compiler/hlo/matmul_precision.h"

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/substitute.h"
#include "cc/compiler/hlo/test_module.h"
#include "gtest/gtest.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace tf_tpu_ext {
namespace {

using xla::HloOpcode;

constexpr char kProduct[] = R"(
HloModule product

ENTRY entry {
  x = f32[4,4] parameter(0)
  y = f32[4,4] parameter(1)
  ROOT product = f32[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}$0
}
)";

struct Count {
  int products = 0;
  int roundings = 0;
};

Count CountIn(const std::string& text, bool kernels_too = true) {
  std::unique_ptr<xla::HloModule> module = ParseModule(text);
  EXPECT_TRUE(RoundProducts(kernels_too, module.get()).ok());
  ExpectValid(module.get());
  const xla::HloComputation& entry = *module->entry_computation();
  return {CountOps(entry, HloOpcode::kDot) + CountOps(entry, HloOpcode::kConvolution),
          CountOps(entry, HloOpcode::kReducePrecision)};
}

Count OfPrecision(const std::string& attribute) {
  return CountIn(absl::Substitute(kProduct, attribute));
}

TEST(MatmulPrecisionTest, PrecisionSaysHowManyProducts) {
  for (const auto& [attribute, products, roundings] :
       std::vector<std::tuple<const char*, int, int>>{
           {"", 1, 2},
           {", operand_precision={default,default}", 1, 2},
           {", operand_precision={high,high}", 3, 4},
           {", operand_precision={highest,highest}", 1, 0},
           {", operand_precision={default,highest}", 1, 1},
           {", operand_precision={high,highest}", 2, 2},
           {", algorithm=dot_bf16_bf16_f32", 1, 2},
           {", algorithm=dot_bf16_bf16_f32_x3", 3, 4},
           {", algorithm=dot_bf16_bf16_f32_x6", 1, 0},
           {", algorithm=dot_f32_f32_f32", 1, 0}}) {
    const Count count = OfPrecision(attribute);
    EXPECT_EQ(count.products, products) << attribute;
    EXPECT_EQ(count.roundings, roundings) << attribute;
  }
}

TEST(MatmulPrecisionTest, OtherTypesStay) {
  for (const char* type : {"f64", "bf16", "s32", "c64", "f16"}) {
    const std::string text = absl::StrReplaceAll(absl::Substitute(kProduct, ""), {{"f32", type}});
    EXPECT_EQ(CountIn(text).roundings, 0) << type;
  }
}

TEST(MatmulPrecisionTest, AnOperandIsRoundedOnce) {
  const Count count = CountIn(R"(
HloModule twice

ENTRY entry {
  x = f32[4,4] parameter(0)
  first = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT second = f32[4,4] dot(first, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
)");
  EXPECT_EQ(count.products, 2);
  EXPECT_EQ(count.roundings, 2);
}

TEST(MatmulPrecisionTest, Convolutions) {
  const Count count = CountIn(R"(
HloModule convolution

ENTRY entry {
  x = f32[1,8,8,3] parameter(0)
  y = f32[3,3,3,4] parameter(1)
  ROOT made = f32[1,6,6,4] convolution(x, y), window={size=3x3}, dim_labels=b01f_01io->b01f
}
)");
  EXPECT_EQ(count.products, 1);
  EXPECT_EQ(count.roundings, 2);
}

}  // namespace
}  // namespace tf_tpu_ext
