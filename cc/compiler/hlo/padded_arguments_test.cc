#include "cc/compiler/hlo/padded_arguments.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "cc/compiler/hlo/test_module.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

constexpr char kPadded[] = R"(
HloModule padded

ENTRY entry {
  array = f32[4,3,8] parameter(0)
  rows = s32[] parameter(1)
  columns = s64[1] parameter(2)
  plain = f32[4] parameter(3)
  sharded = f32[4,3,8] custom-call(array), custom_call_target="Sharding"
  by_rows = f32[<=4,3,8] set-dimension-size(sharded, rows), dimensions={0}
  scalar = s64[] reshape(columns)
  narrow = s32[] convert(scalar)
  by_both = f32[<=4,3,<=8] set-dimension-size(by_rows, narrow), dimensions={2}
  // Sizes that the program computes say nothing of the host's padding.
  computed = s32[] add(rows, narrow)
  by_computed = f32[<=4] set-dimension-size(plain, computed), dimensions={0}
  doubled = f32[4] add(plain, plain)
  of_doubled = f32[<=4] set-dimension-size(doubled, rows), dimensions={0}
  ROOT all = (f32[<=4,3,<=8], f32[<=4], f32[<=4]) tuple(by_both, by_computed, of_doubled)
}
)";

TEST(PaddedArgumentsTest, FindsEveryDimensionOfAnArgument) {
  const std::vector<PaddedArgument> padded =
      PaddedArguments(*ParseModule(kPadded),
                      {ArgumentNumber(5), ArgumentNumber(6), ArgumentNumber(7), ArgumentNumber(8)});
  ASSERT_EQ(padded.size(), 1u);
  EXPECT_EQ(padded[0].argument, ArgumentNumber(5));
  EXPECT_EQ(padded[0].sizes, (std::vector<std::pair<int, ArgumentNumber>>{{0, ArgumentNumber(6)},
                                                                          {2, ArgumentNumber(7)}}));
}

TEST(PaddedArgumentsTest, ParametersWithoutArgumentsAreNone) {
  EXPECT_TRUE(PaddedArguments(*ParseModule(kPadded), {ArgumentNumber(0)}).empty());
  EXPECT_TRUE(PaddedArguments(*ParseModule(kPadded), {}).empty());
}

}  // namespace
}  // namespace tf_tpu_ext
