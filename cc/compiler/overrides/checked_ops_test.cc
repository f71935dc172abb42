#include "cc/compiler/overrides/checked_ops.h"

#include <cstdint>
#include <string>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "cc/base/op_testing.h"
#include "cc/base/tensor_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

absl::StatusOr<Tensor> CheckedSlice(const Tensor& start, const Tensor& size) {
  OpTester tester("TpuExt>CheckedXlaDynamicSlice");
  return tester.Input(MakeTensor<float>({1, 2, 3, 4}, {4})).Input(start).Constant(size).Run();
}

TEST(CheckedOpsTest, DynamicSlice) {
  const auto slice = CheckedSlice(MakeTensor<int32_t>({1}, {1}), MakeTensor<int32_t>({2}, {1}));
  ASSERT_TRUE(slice.ok()) << slice.status();
  EXPECT_EQ(slice->flat<float>()(0), 2);
  EXPECT_EQ(slice->flat<float>()(1), 3);
}

TEST(CheckedOpsTest, DynamicSliceWithIndicesForOtherDimensions) {
  const Tensor one = MakeTensor<int32_t>({1}, {1}), two = MakeTensor<int32_t>({1, 1}, {2});
  const Tensor scalar = MakeScalar<int32_t>(1);
  for (const auto& [start, size, name] :
       {std::make_tuple(scalar, one, "start_indices"), std::make_tuple(two, two, "start_indices"),
        std::make_tuple(one, scalar, "size_indices"), std::make_tuple(one, two, "size_indices")}) {
    const absl::Status status = CheckedSlice(start, size).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), name)) << status;
  }
}

TEST(CheckedOpsTest, DynamicSliceWithMoreSizesThanStartsHasTheErrorOfXla) {
  const absl::Status status =
      CheckedSlice(MakeTensor<int32_t>({1}, {1}), MakeTensor<int32_t>({1, 1}, {2})).status();
  EXPECT_TRUE(absl::StrContains(
      status.message(), "has mismatched number of slice sizes (2) and number of start indices (1)"))
      << status;
}

TEST(CheckedOpsTest, OthersStayAsTheyAre) {
  tensorflow::NodeDef node;
  node.set_op("XlaDynamicUpdateSlice");
  UseCheckedOp(&node);
  EXPECT_EQ(node.op(), "XlaDynamicUpdateSlice");
  node.set_op("XlaDynamicSlice");
  UseCheckedOp(&node);
  EXPECT_EQ(node.op(), "TpuExt>CheckedXlaDynamicSlice");
}

}  // namespace
}  // namespace tf_tpu_ext
