#include "cc/compiler/overrides/tensorflow_kernels.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::DT_DOUBLE;
using tensorflow::DT_FLOAT;
using tensorflow::DT_INT32;
using tensorflow::NodeDef;
using tensorflow::TensorShape;

NodeDef Node(const std::string& op, int rank = 4) {
  NodeDef node;
  node.set_name("node");
  node.set_op(op);
  const tensorflow::OpDef* definition = nullptr;
  EXPECT_TRUE(tensorflow::OpRegistry::Global()->LookUpOpDef(op, &definition).ok());
  for (const auto& attribute : definition->attr()) {
    if (attribute.has_default_value()) {
      (*node.mutable_attr())[attribute.name()] = attribute.default_value();
    }
  }
  tensorflow::AddNodeAttr("T", DT_FLOAT, &node);
  tensorflow::AddNodeAttr("strides", std::vector<int>(rank, 1), &node);
  tensorflow::AddNodeAttr("padding", "SAME", &node);
  return node;
}

void SetNumbers(const std::string& name, const std::vector<int>& values, NodeDef* node) {
  node->mutable_attr()->erase(name);
  tensorflow::AddNodeAttr(name, values, node);
}

void Set(const std::string& name, const std::string& value, NodeDef* node) {
  (*node->mutable_attr())[name].set_s(value);
}

KernelOperand Of(const TensorShape& shape) { return {DT_FLOAT, shape, {}}; }

KernelOperand Sizes(const std::vector<int64_t>& sizes) {
  return {DT_INT32, TensorShape({static_cast<int64_t>(sizes.size())}), sizes};
}

const TensorShape kImages({16, 28, 28, 32});
const TensorShape kFilter({3, 3, 32, 64});
const TensorShape kMaps({16, 28, 28, 64});

TEST(ChooseKernelTest, Convolution) {
  auto choice = ChooseKernel(Node("Conv2D"), {Of(kImages), Of(kFilter)});
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->shape, kMaps);
  EXPECT_EQ(choice->type, DT_FLOAT);
  // The op's name does not matter: equal convolutions share a kernel.
  NodeDef other = Node("Conv2D");
  other.set_name("other");
  EXPECT_EQ(choice->node.DebugString(),
            ChooseKernel(other, {Of(kImages), Of(kFilter)})->node.DebugString());
}

TEST(ChooseKernelTest, GradientsOfAConvolution) {
  auto input =
      ChooseKernel(Node("Conv2DBackpropInput"), {Sizes({16, 28, 28, 32}), Of(kFilter), Of(kMaps)});
  ASSERT_TRUE(input.has_value());
  EXPECT_EQ(input->shape, kImages);
  auto filter =
      ChooseKernel(Node("Conv2DBackpropFilter"), {Of(kImages), Sizes({3, 3, 32, 64}), Of(kMaps)});
  ASSERT_TRUE(filter.has_value());
  EXPECT_EQ(filter->shape, kFilter);
}

TEST(ChooseKernelTest, StridesAndPadding) {
  NodeDef node = Node("Conv2D");
  SetNumbers("strides", {1, 2, 3, 1}, &node);
  EXPECT_EQ(ChooseKernel(node, {Of(kImages), Of(kFilter)})->shape, TensorShape({16, 14, 10, 64}));
  Set("padding", "VALID", &node);
  EXPECT_EQ(ChooseKernel(node, {Of(kImages), Of(kFilter)})->shape, TensorShape({16, 13, 9, 64}));
}

TEST(ChooseKernelTest, ThreeDimensions) {
  const TensorShape volumes({4, 8, 8, 8, 3}), filter({3, 3, 3, 3, 16}), maps({4, 8, 8, 8, 16});
  EXPECT_EQ(ChooseKernel(Node("Conv3D", 5), {Of(volumes), Of(filter)})->shape, maps);
  NodeDef node = Node("Conv3DBackpropInputV2", 5);
  tensorflow::AddNodeAttr("Tshape", tensorflow::DT_INT64, &node);
  auto input = ChooseKernel(node, {Sizes({4, 8, 8, 8, 3}), Of(filter), Of(maps)});
  ASSERT_TRUE(input.has_value());
  EXPECT_EQ(input->shape, volumes);
}

TEST(ChooseKernelTest, DepthwiseMultipliesChannels) {
  EXPECT_EQ(
      ChooseKernel(Node("DepthwiseConv2dNative"), {Of(kImages), Of(TensorShape({3, 3, 32, 2}))})
          ->shape,
      kMaps);
}

TEST(ChooseKernelTest, Pools) {
  NodeDef node = Node("MaxPool");
  SetNumbers("ksize", {1, 2, 2, 1}, &node);
  SetNumbers("strides", {1, 2, 2, 1}, &node);
  const TensorShape pooled({16, 14, 14, 32});
  EXPECT_EQ(ChooseKernel(node, {Of(kImages)})->shape, pooled);
  node.set_op("MaxPoolGrad");
  EXPECT_EQ(ChooseKernel(node, {Of(kImages), Of(pooled), Of(pooled)})->shape, kImages);
  EXPECT_FALSE(ChooseKernel(node, {Of(kImages), Of(kImages), Of(pooled)}).has_value());
  // If windows share no elements, XLA is faster.
  node.set_op("AvgPoolGrad");
  const std::vector<KernelOperand> operands = {Sizes({16, 28, 28, 32}), Of(pooled)};
  EXPECT_FALSE(ChooseKernel(node, operands).has_value());
  SetNumbers("ksize", {1, 3, 3, 1}, &node);
  EXPECT_EQ(ChooseKernel(node, operands)->shape, kImages);
}

TEST(TilesOfMaxPoolGradTest, WindowsThatTileTheInput) {
  NodeDef node = Node("MaxPoolGrad");
  SetNumbers("ksize", {1, 2, 4, 1}, &node);
  SetNumbers("strides", {1, 2, 4, 1}, &node);
  const TensorShape pooled({16, 14, 7, 32});
  const std::vector<KernelOperand> operands = {Of(kImages), Of(pooled), Of(pooled)};
  EXPECT_EQ(TilesOfMaxPoolGrad(node, operands), (std::vector<int32_t>{2, 4}));
  EXPECT_FALSE(TilesOfMaxPoolGrad(node, {Of(kImages), Of(kImages), Of(pooled)}).has_value());
  node.set_op("AvgPoolGrad");
  EXPECT_FALSE(TilesOfMaxPoolGrad(node, operands).has_value());
}

TEST(TilesOfMaxPoolGradTest, OtherWindowsAreLeftToKernels) {
  NodeDef node = Node("MaxPoolGrad");
  SetNumbers("ksize", {1, 3, 3, 1}, &node);
  SetNumbers("strides", {1, 2, 2, 1}, &node);
  const TensorShape overlapping({16, 14, 14, 32});
  EXPECT_FALSE(
      TilesOfMaxPoolGrad(node, {Of(kImages), Of(overlapping), Of(overlapping)}).has_value());
  SetNumbers("strides", {1, 3, 3, 1}, &node);
  Set("padding", "VALID", &node);
  const TensorShape with_rest({16, 9, 9, 32});
  EXPECT_FALSE(TilesOfMaxPoolGrad(node, {Of(kImages), Of(with_rest), Of(with_rest)}).has_value());
  SetNumbers("ksize", {1, 7, 7, 1}, &node);
  SetNumbers("strides", {1, 7, 7, 1}, &node);
  const TensorShape large({16, 4, 4, 32});
  EXPECT_FALSE(TilesOfMaxPoolGrad(node, {Of(kImages), Of(large), Of(large)}).has_value());
}

TEST(ChooseKernelTest, SmallOpsAreXlas) {
  EXPECT_FALSE(
      ChooseKernel(Node("Conv2D"), {Of(TensorShape({1, 4, 4, 3})), Of(TensorShape({3, 3, 3, 8}))})
          .has_value());
  EXPECT_EQ(ChooseKernel(Node("Conv2D"), {Of(kImages), Of(kFilter)})->work,
            kMaps.num_elements() * 3 * 3 * 32);
}

TEST(ChooseKernelTest, OtherOpsAreXlas) {
  NodeDef node;
  node.set_op("MatMul");
  EXPECT_FALSE(ChooseKernel(node, {Of({2, 2}), Of({2, 2})}).has_value());
}

TEST(ChooseKernelTest, OtherTypesAreXlas) {
  KernelOperand images = Of(kImages), filter = Of(kFilter);
  images.type = filter.type = DT_DOUBLE;
  EXPECT_FALSE(ChooseKernel(Node("Conv2D"), {images, filter}).has_value());
}

TEST(ChooseKernelTest, SmallerTypesAreComputedInFloat32) {
  for (const tensorflow::DataType type : {tensorflow::DT_BFLOAT16, tensorflow::DT_HALF}) {
    NodeDef node = Node("DepthwiseConv2dNative");
    (*node.mutable_attr())["T"].set_type(type);
    KernelOperand images = Of(kImages), filter = Of(TensorShape({3, 3, 32, 2}));
    images.type = filter.type = type;
    const auto choice = ChooseKernel(node, {images, filter});
    ASSERT_TRUE(choice.has_value());
    EXPECT_EQ(choice->type, DT_FLOAT);
    EXPECT_EQ(choice->node.attr().at("T").type(), DT_FLOAT);
    images.type = DT_FLOAT;
    EXPECT_FALSE(ChooseKernel(node, {images, filter}).has_value());
  }
}

TEST(ChooseKernelTest, WhatKernelsDoNotSupportIsXlas) {
  const std::vector<KernelOperand> operands = {Of(kImages), Of(kFilter)};
  NodeDef node = Node("Conv2D");
  Set("data_format", "NCHW", &node);
  EXPECT_FALSE(ChooseKernel(node, operands).has_value());
  node = Node("Conv2D");
  Set("padding", "EXPLICIT", &node);
  EXPECT_FALSE(ChooseKernel(node, operands).has_value());
  node = Node("Conv2D");
  SetNumbers("strides", {1, 1, 1, 2}, &node);
  EXPECT_FALSE(ChooseKernel(node, operands).has_value());
  // Grouped: the filter has half of the channels.
  EXPECT_FALSE(
      ChooseKernel(Node("Conv2D"), {Of(kImages), Of(TensorShape({3, 3, 16, 64}))}).has_value());
}

TEST(ChooseKernelTest, EmptyTensorsAreXlas) {
  EXPECT_FALSE(
      ChooseKernel(Node("Conv2D"), {Of(TensorShape({0, 28, 28, 32})), Of(kFilter)}).has_value());
  NodeDef node = Node("Conv2D");
  Set("padding", "VALID", &node);
  EXPECT_FALSE(ChooseKernel(node, {Of(TensorShape({16, 2, 2, 32})), Of(kFilter)}).has_value());
}

TEST(ChooseKernelTest, WrongOpsAreXlasToExplain) {
  EXPECT_FALSE(ChooseKernel(Node("Conv2D"), {Of(TensorShape({28, 28})), Of(kFilter)}).has_value());
  EXPECT_FALSE(
      ChooseKernel(Node("Conv2DBackpropInput"), {Sizes({16, 27, 28, 32}), Of(kFilter), Of(kMaps)})
          .has_value());
  EXPECT_FALSE(ChooseKernel(Node("Conv2DBackpropInput"), {Sizes({28, -1}), Of(kFilter), Of(kMaps)})
                   .has_value());
  EXPECT_FALSE(
      ChooseKernel(Node("Conv2DBackpropFilter"), {Of(kImages), Sizes({3, 3, 32}), Of(kMaps)})
          .has_value());
}

TEST(UseTensorFlowKernelsTest, ReplacesOpsOfItsOwn) {
  tensorflow::FunctionDef function;
  function.mutable_signature()->set_name("f");
  *function.add_node_def() = Node("Conv2D");
  NodeDef* other = function.add_node_def();
  other->set_name("other");
  other->set_op("NoOp");
  tensorflow::FunctionLibraryDefinition library(tensorflow::OpRegistry::Global(),
                                                tensorflow::FunctionDefLibrary());
  ASSERT_TRUE(library.AddFunctionDef(function).ok());
  ASSERT_TRUE(UseTensorFlowKernels(&library).ok());
  EXPECT_EQ(library.Find("f")->node_def(0).op(), "TpuExt>KernelConv2D");
  EXPECT_EQ(library.Find("f")->node_def(1).op(), "NoOp");
  const tensorflow::OpDef* definition = nullptr;
  EXPECT_TRUE(library.LookUpOpDef("TpuExt>KernelConv2D", &definition).ok());
}

}  // namespace
}  // namespace tf_tpu_ext
