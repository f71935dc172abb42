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
  stats.Count({{zero, {{0, one}, {1, two}}}}, {array, rows, columns});
  EXPECT_EQ(stats.Totals().elements, 40);
  EXPECT_EQ(stats.Totals().padding, 25);
  // What can't be read is taken for full.
  stats.Count({{zero, {{0, zero}, {1, missing}, {7, one}}}, {missing, {}}}, {array, rows});
  EXPECT_EQ(stats.Totals().elements, 80);
  EXPECT_EQ(stats.Totals().padding, 25);
}

}  // namespace
}  // namespace tf_tpu_ext
