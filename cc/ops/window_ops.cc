#include "cc/ops/window_ops.h"

namespace tf_tpu_ext {

const absl::flat_hash_map<std::string, WindowOp>& WindowOps() {
  static const auto* const ops = new absl::flat_hash_map<std::string, WindowOp>({
      {"Conv2D", {WindowOp::kConvolution, 2, 0, 1, kResultOfOp}},
      {"Conv2DBackpropInput", {WindowOp::kConvolution, 2, kResultOfOp, 1, 2, 0}},
      {"Conv2DBackpropFilter", {WindowOp::kConvolution, 2, 0, kResultOfOp, 2, 1}},
      {"Conv3D", {WindowOp::kConvolution, 3, 0, 1, kResultOfOp}},
      {"Conv3DBackpropInputV2", {WindowOp::kConvolution, 3, kResultOfOp, 1, 2, 0}},
      {"Conv3DBackpropFilterV2", {WindowOp::kConvolution, 3, 0, kResultOfOp, 2, 1}},
      {"DepthwiseConv2dNative", {WindowOp::kDepthwise, 2, 0, 1, kResultOfOp}},
      {"DepthwiseConv2dNativeBackpropInput", {WindowOp::kDepthwise, 2, kResultOfOp, 1, 2, 0}},
      {"DepthwiseConv2dNativeBackpropFilter", {WindowOp::kDepthwise, 2, 0, kResultOfOp, 2, 1}},
      {"MaxPool", {WindowOp::kPool, 2, 0, kNoOperand, kResultOfOp}},
      {"MaxPoolGrad", {WindowOp::kPool, 2, 0, kNoOperand, 2}},
      {"AvgPool", {WindowOp::kPool, 2, 0, kNoOperand, kResultOfOp}},
      {"AvgPoolGrad", {WindowOp::kPool, 2, kResultOfOp, kNoOperand, 1, 0}},
  });
  return *ops;
}

}  // namespace tf_tpu_ext
