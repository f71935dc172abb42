#include "cc/runtime/padding_stats.h"

#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

TEST(PaddingStatsTest, CountsElementsBeyondTheSizes) {
  Tensor rows(tensorflow::DT_INT32, {});
  rows.scalar<int32_t>()() = 3;
  Tensor columns(tensorflow::DT_INT64, {1});
  columns.flat<int64_t>()(0) = 5;
  const Tensor array(tensorflow::DT_FLOAT, {4, 10});
  PaddingStats stats;
  const ArgumentNumber zero(0), one(1), two(2), missing(9);
  stats.Count(1, {{zero, {{0, one}, {1, two}}}}, {array, rows, columns});
  EXPECT_EQ(stats.Totals().elements, 40);
  EXPECT_EQ(stats.Totals().padding, 25);
  // Arguments whose size can't be read count as full.
  stats.Count(1, {{zero, {{0, zero}, {1, missing}, {7, one}}}, {missing, {}}}, {array, rows});
  EXPECT_EQ(stats.Totals().elements, 80);
  EXPECT_EQ(stats.Totals().padding, 25);
  stats.Count(2, {{zero, {{0, one}}}}, {array, rows});
  const std::vector<PaddedInput> inputs = stats.Inputs();
  ASSERT_EQ(inputs.size(), 2);
  EXPECT_EQ(inputs[0].program_id, 1);
  EXPECT_EQ(inputs[0].totals.padding, 25);
  EXPECT_EQ(inputs[1].program_id, 2);
  EXPECT_EQ(inputs[1].argument, zero);
  EXPECT_EQ(inputs[1].totals.elements, 40);
  EXPECT_EQ(inputs[1].totals.padding, 10);
}

}  // namespace
}  // namespace tf_tpu_ext
