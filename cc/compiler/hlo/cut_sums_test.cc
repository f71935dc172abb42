#include "cc/compiler/hlo/cut_sums.h"

#include <memory>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "cc/compiler/hlo/test_module.h"
#include "cc/program/chain_cut.h"
#include "gtest/gtest.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {
namespace {

using xla::HloInstruction;
using xla::HloModule;

// The root sums `summed` over the dimensions. `before` defines it in terms of x and y, which have
// its shape.
std::unique_ptr<HloModule> CutSumOf(const std::string& shape, const std::string& before,
                                    const std::string& dimensions, const std::string& result,
                                    const std::string& reducer = "add") {
  std::unique_ptr<HloModule> module = ParseModule(absl::StrCat(
      "HloModule sums\n\nreducer {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
      "  ROOT c = f32[] ",
      reducer, "(a, b)\n}\n\nENTRY entry {\n  x = ", shape, " parameter(0)\n  y = ", shape,
      " parameter(1)\n  zero = f32[] constant(0)\n", before, "  ROOT sum = ", result,
      " reduce(summed, zero), dimensions={", dimensions, "}, to_apply=reducer\n}\n"));
  EXPECT_TRUE(CutSums(module.get()).ok());
  ExpectValid(module.get());
  return module;
}

bool IsCutSum(const HloModule& module) {
  return module.entry_computation()->root_instruction()->operand(0)->IsCustomCall(kChainCutTarget);
}

constexpr char kImageShape[] = "f32[32,16,16,64]";
constexpr char kSummedProduct[] = "  summed = f32[32,16,16,64] multiply(x, y)\n";

TEST(CutSumsTest, CutsWhatXlaComputesWithTheSum) {
  const auto module = CutSumOf(kImageShape, kSummedProduct, "0,1,2", "f32[64]");
  ASSERT_TRUE(IsCutSum(*module));
  const HloInstruction* cut = Find(*module, "sum")->operand(0);
  EXPECT_EQ(cut->operand(0), Find(*module, "summed"));
  for (const char* summed : {"divide(x, y)", "power(x, y)"}) {
    const std::string before = absl::StrCat("  summed = f32[32,16,16,64] ", summed, "\n");
    EXPECT_TRUE(IsCutSum(*CutSumOf(kImageShape, before, "0,1,2", "f32[64]"))) << summed;
  }
}

TEST(CutSumsTest, LooksThroughWhatComputesNothing) {
  const std::string before =
      "  product = f32[32,256,64] multiply(x, y)\n"
      "  images = f32[32,16,16,64] reshape(product)\n"
      "  summed = f32[32,16,16,64] convert(images)\n";
  EXPECT_TRUE(IsCutSum(*CutSumOf("f32[32,256,64]", before, "0,1,2", "f32[64]")));
  // XLA gives this sum to the library as it is.
  EXPECT_FALSE(IsCutSum(
      *CutSumOf(kImageShape, "  summed = f32[32,16,16,64] convert(x)\n", "0,1,2", "f32[64]")));
}

TEST(CutSumsTest, CutsConversionsToFloat32) {
  EXPECT_TRUE(IsCutSum(*CutSumOf("bf16[32,16,16,64]", "  summed = f32[32,16,16,64] convert(x)\n",
                                 "0,1,2", "f32[64]")));
}

TEST(CutSumsTest, LeavesWhatWouldNotBecomeFaster) {
  // One dimension; of two, one has a single element.
  EXPECT_FALSE(IsCutSum(*CutSumOf(kImageShape, kSummedProduct, "0", "f32[16,16,64]")));
  EXPECT_FALSE(IsCutSum(*CutSumOf("f32[16384,1,64]", "  summed = f32[16384,1,64] multiply(x, y)\n",
                                  "0,1", "f32[64]")));
  // Few addends, few of each result.
  EXPECT_FALSE(IsCutSum(
      *CutSumOf("f32[8,8,8,64]", "  summed = f32[8,8,8,64] multiply(x, y)\n", "0,1,2", "f32[64]")));
  EXPECT_FALSE(IsCutSum(*CutSumOf(kImageShape, kSummedProduct, "1,2", "f32[32,64]")));
  // Not a sum; not of a product.
  EXPECT_FALSE(IsCutSum(*CutSumOf(kImageShape, kSummedProduct, "0,1,2", "f32[64]", "maximum")));
  EXPECT_FALSE(IsCutSum(
      *CutSumOf(kImageShape, "  summed = f32[32,16,16,64] add(x, y)\n", "0,1,2", "f32[64]")));
}

TEST(CutSumsTest, SumsOfOneProductShareACut) {
  const auto module = ParseModule(
      "HloModule sums\n\nadd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
      "  ROOT c = f32[] add(a, b)\n}\n\nENTRY entry {\n  x = f32[32,16,16,64] parameter(0)\n"
      "  zero = f32[] constant(0)\n  square = f32[32,16,16,64] multiply(x, x)\n"
      "  all = f32[] reduce(square, zero), dimensions={0,1,2,3}, to_apply=add\n"
      "  each = f32[64] reduce(square, zero), dimensions={0,1,2}, to_apply=add\n"
      "  ROOT both = (f32[], f32[64]) tuple(all, each)\n}\n");
  ASSERT_TRUE(CutSums(module.get()).ok());
  ExpectValid(module.get());
  const HloInstruction* cut = Find(*module, "all")->operand(0);
  EXPECT_TRUE(cut->IsCustomCall(kChainCutTarget));
  EXPECT_EQ(Find(*module, "each")->operand(0), cut);
}

TEST(CutSumsTest, ModulesWithDynamicSizesStayAsTheyAre) {
  EXPECT_FALSE(
      IsCutSum(*CutSumOf(kImageShape,
                         "  size = s32[] constant(3)\n"
                         "  some = f32[<=32,16,16,64] set-dimension-size(x, size), dimensions={0}\n"
                         "  summed = f32[<=32,16,16,64] multiply(some, some)\n",
                         "0,1,2", "f32[64]")));
}

}  // namespace
}  // namespace tf_tpu_ext
