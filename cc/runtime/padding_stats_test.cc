#include "cc/runtime/padding_stats.h"

#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

TEST(CountPaddingTest, CountsElementsBeyondTheSizes) {
  Tensor rows(tensorflow::DT_INT32, {});
  rows.scalar<int32_t>()() = 3;
  Tensor columns(tensorflow::DT_INT64, {1});
  columns.flat<int64_t>()(0) = 5;
  const Tensor array(tensorflow::DT_FLOAT, {4, 10});
  const PaddingTotals before = TotalPadding();
  CountPadding({{0, {{0, 1}, {1, 2}}}}, {array, rows, columns});
  const PaddingTotals after = TotalPadding();
  EXPECT_EQ(after.elements - before.elements, 40);
  EXPECT_EQ(after.padding - before.padding, 25);
  // What can't be read is taken for full.
  CountPadding({{0, {{0, 0}, {1, 9}, {7, 1}}}, {9, {}}}, {array, rows});
  EXPECT_EQ(TotalPadding().elements - after.elements, 40);
  EXPECT_EQ(TotalPadding().padding, after.padding);
}

}  // namespace
}  // namespace tf_tpu_ext
