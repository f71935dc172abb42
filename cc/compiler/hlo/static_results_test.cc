#include "cc/compiler/hlo/static_results.h"

#include <cstdint>
#include <memory>
#include <string>

#include "cc/compiler/hlo/module.h"
#include "cc/compiler/hlo/test_module.h"
#include "gtest/gtest.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/literal.h"

namespace tf_tpu_ext {
namespace {

TEST(StaticResultsTest, PadsToTheBoundAndReturnsTheSizes) {
  std::unique_ptr<xla::HloModule> module = ParseModule(R"(
HloModule dynamic

ENTRY entry {
  array = s32[3,2] parameter(0)
  rows = s32[] parameter(1)
  columns = s32[] parameter(2)
  by_rows = s32[<=3,2] set-dimension-size(array, rows), dimensions={0}
  by_both = s32[<=3,<=2] set-dimension-size(by_rows, columns), dimensions={1}
  ROOT all = (s32[3,2], s32[<=3,<=2], s32[<=3,2]) tuple(array, by_both, by_rows)
}
)");
  auto sizes = MakeResultsStatic(module.get());
  ASSERT_TRUE(sizes.ok()) << sizes.status();
  EXPECT_EQ(*sizes, (DynamicSizes{
                        {}, {{0, ResultNumber(3)}, {1, ResultNumber(4)}}, {{0, ResultNumber(5)}}}));
  ExpectValid(module.get());
  const xla::Shape result = ToComputation(*module).GetProgramShape()->result();
  ASSERT_EQ(result.tuple_shapes().size(), 6u);
  EXPECT_FALSE(result.is_dynamic());

  // Each array has all its elements, and its sizes are separate results.
  const xla::HloInstruction* root = module->entry_computation()->root_instruction();
  EXPECT_EQ(root->operand(0)->name(), "array");
  const xla::HloInstruction* columns = root->operand(1);
  ASSERT_EQ(columns->opcode(), xla::HloOpcode::kSetDimensionSize);
  EXPECT_EQ(columns->dimension(), 1);
  EXPECT_EQ(columns->operand(1)->literal().Get<int32_t>({}), 2);
  const xla::HloInstruction* rows = columns->operand(0);
  ASSERT_EQ(rows->opcode(), xla::HloOpcode::kSetDimensionSize);
  EXPECT_EQ(rows->dimension(), 0);
  EXPECT_EQ(rows->operand(1)->literal().Get<int32_t>({}), 3);
  EXPECT_EQ(rows->operand(0)->name(), "by_both");
  for (int result : {3, 4, 5}) {
    const xla::HloInstruction* size = root->operand(result);
    ASSERT_EQ(size->opcode(), xla::HloOpcode::kGetDimensionSize);
    EXPECT_EQ(size->operand(0)->name(), result == 5 ? "by_rows" : "by_both");
    EXPECT_EQ(size->dimension(), result == 4 ? 1 : 0);
  }
}

TEST(StaticResultsTest, KeepsThePlacesOfResults) {
  std::unique_ptr<xla::HloModule> module = ParseModule(R"(
HloModule placed

ENTRY entry {
  array = f32[4] parameter(0), sharding={maximal device=1}
  size = s32[] parameter(1), sharding={replicated}
  dynamic = f32[<=4] set-dimension-size(array, size), dimensions={0}, sharding={maximal device=1}
  ROOT all = (f32[<=4]) tuple(dynamic), sharding={{maximal device=1}}
}
)");
  ASSERT_TRUE(MakeResultsStatic(module.get()).ok());
  ExpectValid(module.get());
  const xla::HloInstruction* root = module->entry_computation()->root_instruction();
  ASSERT_TRUE(root->has_sharding());
  EXPECT_EQ(root->sharding().ToString(), "{{maximal device=1}, {maximal device=1}}");
}

TEST(StaticResultsTest, OtherModulesStayAsTheyAre) {
  std::unique_ptr<xla::HloModule> module = ParseModule(R"(
HloModule plain

ENTRY entry {
  x = f32[4] parameter(0)
  ROOT all = (f32[4]) tuple(x)
}
)");
  const std::string before = module->ToString();
  auto sizes = MakeResultsStatic(module.get());
  ASSERT_TRUE(sizes.ok()) << sizes.status();
  EXPECT_TRUE(sizes->empty());
  EXPECT_EQ(module->ToString(), before);
}

}  // namespace
}  // namespace tf_tpu_ext
