#include "cc/ops/window_ops.h"

#include <string>

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

// Checks that the op's operands hold a batch where the mask has an x.
void ExpectBatches(const std::string& op, const std::string& mask, bool makes_batch) {
  const WindowOp& found = WindowOps().at(op);
  for (int i = 0; i < static_cast<int>(mask.size()); ++i) {
    EXPECT_EQ(found.HoldsBatch(i), mask[i] == 'x') << op << " " << i;
  }
  EXPECT_EQ(found.MakesBatch(), makes_batch) << op;
}

TEST(WindowOpsTest, OperandsOtherThanFiltersAndSizesHoldBatches) {
  for (const char* op : {"Conv2D", "Conv3D", "DepthwiseConv2dNative"})
    ExpectBatches(op, "x-", true);
  for (const char* op :
       {"Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput"}) {
    ExpectBatches(op, "--x", true);
  }
  // The gradient of a filter is a sum over the samples.
  for (const char* op :
       {"Conv2DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter"}) {
    ExpectBatches(op, "x-x", false);
  }
  ExpectBatches("MaxPool", "x", true);
  ExpectBatches("AvgPool", "x", true);
  ExpectBatches("MaxPoolGrad", "xxx", true);
  ExpectBatches("AvgPoolGrad", "-x", true);
}

TEST(WindowOpsTest, OtherOpsAreNone) { EXPECT_EQ(WindowOps().count("MatMul"), 0u); }

}  // namespace
}  // namespace tf_tpu_ext
