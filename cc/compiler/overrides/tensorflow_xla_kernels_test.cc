// Tests what the overrides of convolutions and pools are compiled to: a call of TensorFlow's
// kernel, or XLA's code, which is run and compared with plain loops.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cc/base/op_testing.h"
#include "cc/base/tensor_testing.h"
#include "cc/compiler/overrides/dynamic_testing.h"
#include "cc/program/kernel_call.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"
#include "xla/service/hlo.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

using Window = std::vector<int>;

// A convolution of images, by definition. If it is grouped, the filter has only some of the
// channels.
Tensor ConvolutionOf(const Tensor& x, const Tensor& filter, const Window& strides,
                     const Window& dilations, bool same) {
  const int64_t groups = x.dim_size(3) / filter.dim_size(2);
  const int64_t per_group = filter.dim_size(3) / groups;
  const SlidingWindow rows(x.dim_size(1), (filter.dim_size(0) - 1) * dilations[1] + 1, strides[1],
                           same);
  const SlidingWindow columns(x.dim_size(2), (filter.dim_size(1) - 1) * dilations[2] + 1,
                              strides[2], same);
  Tensor result = Zeros({x.dim_size(0), rows.count, columns.count, filter.dim_size(3)});
  ForEachIndex(SizesOf(result), [&](const Index& to) {
    ForEachIndex({filter.dim_size(0), filter.dim_size(1), filter.dim_size(2)}, [&](const Index& f) {
      const int64_t row = rows.PositionOf(to[1], f[0] * dilations[1]);
      const int64_t column = columns.PositionOf(to[2], f[1] * dilations[2]);
      if (!rows.IsInside(row) || !columns.IsInside(column)) return;
      const int64_t channel = to[3] / per_group * filter.dim_size(2) + f[2];
      At(result, to) +=
          At(x, {to[0], row, column, channel}) * At(filter, {f[0], f[1], f[2], to[3]});
    });
  });
  return result;
}

absl::StatusOr<Tensor> RunConvolution(const Tensor& x, const Tensor& filter, const Window& strides,
                                      const Window& dilations, bool same) {
  return OpTester("TpuExt>KernelConv2D")
      .Input(x)
      .Input(filter)
      .Attr("strides", strides)
      .Attr("dilations", dilations)
      .Attr("padding", std::string(same ? "SAME" : "VALID"))
      .Run();
}

TEST(ConvolutionOverrideTest, SmallOnesComputeTheSame) {
  const Tensor x = Numbers({2, 5, 6, 4}), filter = Numbers({3, 2, 4, 2});
  for (const bool same : {false, true}) {
    for (const Window& strides : {Window{1, 1, 1, 1}, Window{1, 2, 3, 1}}) {
      ExpectSame(RunConvolution(x, filter, strides, {1, 1, 1, 1}, same),
                 ConvolutionOf(x, filter, strides, {1, 1, 1, 1}, same), "strided: ");
    }
    ExpectSame(RunConvolution(x, filter, {1, 1, 1, 1}, {1, 2, 2, 1}, same),
               ConvolutionOf(x, filter, {1, 1, 1, 1}, {1, 2, 2, 1}, same), "dilated: ");
  }
}

TEST(ConvolutionOverrideTest, GroupsOfChannelsComputeTheSame) {
  const Tensor x = Numbers({2, 4, 4, 6}), filter = Numbers({2, 2, 2, 9});
  ExpectSame(RunConvolution(x, filter, {1, 1, 1, 1}, {1, 1, 1, 1}, true),
             ConvolutionOf(x, filter, {1, 1, 1, 1}, {1, 1, 1, 1}, true), "grouped: ");
}

TEST(ConvolutionOverrideTest, OfNoImagesIsEmpty) {
  ExpectSame(
      RunConvolution(Zeros({0, 4, 4, 2}), Numbers({2, 2, 2, 3}), {1, 1, 1, 1}, {1, 1, 1, 1}, true),
      Zeros({0, 4, 4, 3}), "no images: ");
}

TEST(ConvolutionOverrideTest, PaddingOfABatchIsNoImage) {
  // Only the first two of three images are real. A kernel would not know, so XLA computes dynamic
  // sizes.
  const Tensor x = Padded({3, 16, 16, 16}, 0, 2), filter = Numbers({3, 3, 16, 16});
  const auto result = OpTester("TpuExt>KernelConv2D")
                          .DynamicInput(x, 0, 2)
                          .Input(filter)
                          .Attr("strides", Window{1, 1, 1, 1})
                          .Attr("padding", "SAME")
                          .Run();
  ExpectSame(result, ConvolutionOf(Cut(x, 0, 2), filter, {1, 1, 1, 1}, {1, 1, 1, 1}, true),
             "padded: ");
}

// The gradient of a max pool, by definition: the first of a window's largest elements gets the
// window's gradient.
Tensor MaxPoolGradOf(const Tensor& x, const Tensor& gradient, const Window& ksize,
                     const Window& strides) {
  Tensor result = Zeros(SizesOf(x));
  ForEachIndex(SizesOf(gradient), [&](const Index& to) {
    Index largest;
    ForEachIndex({ksize[1], ksize[2]}, [&](const Index& w) {
      const Index from = {to[0], to[1] * strides[1] + w[0], to[2] * strides[2] + w[1], to[3]};
      if (largest.empty() || At(x, from) > At(x, largest)) largest = from;
    });
    At(result, largest) += At(gradient, to);
  });
  return result;
}

Tensor MaxPoolOf(const Tensor& x, const Window& ksize, const Window& strides) {
  Tensor result = Zeros({x.dim_size(0), (x.dim_size(1) - ksize[1]) / strides[1] + 1,
                         (x.dim_size(2) - ksize[2]) / strides[2] + 1, x.dim_size(3)});
  ForEachIndex(SizesOf(result), [&](const Index& to) {
    float largest = -kJunk;
    ForEachIndex({ksize[1], ksize[2]}, [&](const Index& w) {
      largest = std::max(
          largest, At(x, {to[0], to[1] * strides[1] + w[0], to[2] * strides[2] + w[1], to[3]}));
    });
    At(result, to) = largest;
  });
  return result;
}

absl::StatusOr<Tensor> RunMaxPoolGrad(const Tensor& x, const Tensor& output, const Tensor& gradient,
                                      const Window& ksize, const Window& strides) {
  return OpTester("TpuExt>KernelMaxPoolGrad")
      .Input(x)
      .Input(output)
      .Input(gradient)
      .Attr("ksize", ksize)
      .Attr("strides", strides)
      .Attr("padding", "VALID")
      .Run();
}

TEST(MaxPoolGradOverrideTest, TheFirstLargestElementGetsTheGradient) {
  // There are only three different numbers, so most windows have several largest elements.
  Tensor x = Numbers({2, 8, 12, 3});
  ForEachIndex(SizesOf(x), [&](const Index& index) {
    At(x, index) = static_cast<float>(static_cast<int>(At(x, index)) % 3);
  });
  // The first three tile the input, the last one overlaps.
  for (const Window& windows :
       {Window{1, 2, 2, 1}, Window{1, 4, 3, 1}, Window{1, 1, 4, 1}, Window{1, 3, 3, 1}}) {
    const Window strides = windows[1] == 3 ? Window{1, 2, 2, 1} : windows;
    const Tensor output = MaxPoolOf(x, windows, strides);
    const Tensor gradient = Numbers(output.shape());
    ExpectSame(RunMaxPoolGrad(x, output, gradient, windows, strides),
               MaxPoolGradOf(x, gradient, windows, strides),
               absl::StrCat(windows[1], "x", windows[2], ": "));
  }
}

TEST(MaxPoolGradOverrideTest, OfNoImagesIsEmpty) {
  ExpectSame(RunMaxPoolGrad(Zeros({0, 4, 4, 2}), Zeros({0, 2, 2, 2}), Zeros({0, 2, 2, 2}),
                            {1, 2, 2, 1}, {1, 2, 2, 1}),
             Zeros({0, 4, 4, 2}), "no images: ");
}

TEST(MaxPoolOverrideTest, SmallOnesComputeTheSame) {
  const Tensor x = Numbers({2, 5, 6, 3});
  for (const Window& strides : {Window{1, 1, 1, 1}, Window{1, 2, 3, 1}}) {
    const Window ksize = {1, 2, 3, 1};
    ExpectSame(OpTester("TpuExt>KernelMaxPool")
                   .Input(x)
                   .Attr("ksize", ksize)
                   .Attr("strides", strides)
                   .Attr("padding", "VALID")
                   .Run(),
               MaxPoolOf(x, ksize, strides), "max pool: ");
  }
}

// A call of a TensorFlow kernel that an op is compiled to.
struct EmittedCall {
  KernelCall call;
  std::vector<int64_t> result;
  size_t operands = 0;
};
std::vector<EmittedCall> CallsOf(OpTester& tester) {
  std::vector<EmittedCall> calls;
  const auto compiled = tester.Compile();
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return calls;
  for (const auto& computation : (*compiled)->computation->proto().computations()) {
    for (const auto& instruction : computation.instructions()) {
      if (instruction.custom_call_target() != kKernelTarget) continue;
      const auto call = DecodeKernelCall(instruction.backend_config());
      EXPECT_TRUE(call.ok()) << call.status();
      if (!call.ok()) continue;
      const auto& sizes = instruction.shape().dimensions();
      calls.push_back({*call,
                       {sizes.begin(), sizes.end()},
                       static_cast<size_t>(instruction.operand_ids_size())});
    }
  }
  return calls;
}

constexpr char kNode[] = "the_op";

TEST(KernelCallTest, LargeConvolutionsAreCalls) {
  OpTester tester("TpuExt>KernelConv2D");
  tester.Input(Numbers({4, 16, 16, 16})).Input(Numbers({3, 3, 16, 32}));
  tester.Attr("strides", Window{1, 2, 2, 1}).Attr("padding", "SAME");
  const std::vector<EmittedCall> calls = CallsOf(tester);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].call.op, "Conv2D");
  EXPECT_EQ(calls[0].call.name, kNode);
  EXPECT_EQ(calls[0].result, (std::vector<int64_t>{4, 8, 8, 32}));
  EXPECT_EQ(calls[0].operands, 2u);
  EXPECT_EQ(calls[0].call.work, 4 * 8 * 8 * 32 * 3 * 3 * 16);
  EXPECT_EQ(calls[0].call.node.attr().at("padding").s(), "SAME");
  EXPECT_EQ(calls[0].call.node.attr().at("strides").list().i(1), 2);
}

TEST(KernelCallTest, GradientsTakeTheirSizesAsAnOperand) {
  OpTester tester("TpuExt>KernelConv2DBackpropInput");
  tester.Constant(MakeVector<int32_t>({4, 16, 16, 16})).Input(Numbers({3, 3, 16, 32}));
  tester.Input(Numbers({4, 16, 16, 32})).Attr("strides", Window{1, 1, 1, 1});
  tester.Attr("padding", "SAME");
  const std::vector<EmittedCall> calls = CallsOf(tester);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].call.op, "Conv2DBackpropInput");
  EXPECT_EQ(calls[0].result, (std::vector<int64_t>{4, 16, 16, 16}));
  EXPECT_EQ(calls[0].operands, 3u);
}

TEST(KernelCallTest, SmallAndPaddedOnesAreNone) {
  OpTester small("TpuExt>KernelConv2D");
  small.Input(Numbers({1, 4, 4, 2})).Input(Numbers({2, 2, 2, 3}));
  small.Attr("strides", Window{1, 1, 1, 1}).Attr("padding", "SAME");
  EXPECT_TRUE(CallsOf(small).empty());
  OpTester padded("TpuExt>KernelConv2D");
  padded.DynamicInput(Numbers({4, 16, 16, 16}), 0, 2).Input(Numbers({3, 3, 16, 32}));
  padded.Attr("strides", Window{1, 1, 1, 1}).Attr("padding", "SAME");
  EXPECT_TRUE(CallsOf(padded).empty());
}

TEST(KernelCallTest, AWrongOpIsXlasErrorToExplain) {
  OpTester tester("TpuExt>KernelConv2D");
  tester.Input(Numbers({4, 16, 16, 16})).Input(Numbers({3, 3, 5, 32}));
  tester.Attr("strides", Window{1, 1, 1, 1}).Attr("padding", "SAME");
  EXPECT_EQ(tester.Compile().status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tf_tpu_ext
