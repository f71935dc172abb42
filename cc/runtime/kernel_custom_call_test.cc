// Tests TensorFlow's kernels in a running program, called through XLA's custom calls.
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "cc/base/compute_pool.h"
#include "cc/base/custom_call_tester.h"
#include "cc/base/kernel_threads.h"
#include "cc/base/process.h"
#include "cc/base/tensor_testing.h"
#include "cc/program/kernel_call.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::NodeDef;
using tensorflow::Tensor;
using tensorflow::TensorShape;

NodeDef Node(const std::string& op, const std::vector<std::string>& inputs) {
  NodeDef node;
  node.set_name(op);
  node.set_op(op);
  for (const std::string& input : inputs) node.add_input(input);
  tensorflow::AddNodeAttr("T", tensorflow::DT_FLOAT, &node);
  return node;
}

KernelCall CallOf(NodeDef node) {
  KernelCall call;
  call.op = node.op();
  call.name = "model/layer";
  call.node = std::move(node);
  call.work = 1000;
  return call;
}

// Installs the threads for the kernels.
[[maybe_unused]] const bool kInstalled = [] {
  auto* const pool = new ComputePool;
  auto* const process = new Process;
  process->compute_pool = pool;
  process->kernel_threads = new KernelThreadPools(pool);
  Process::Install(process);
  return true;
}();

absl::StatusOr<std::unique_ptr<CustomCallTester>> Make(const KernelCall& call,
                                                       std::vector<Tensor> operands,
                                                       Tensor result) {
  return CustomCallTester::Create(kKernelTarget, Encode(call), std::move(operands),
                                  {std::move(result)});
}

TEST(KernelCallTest, ComputesIntoTheProgramsMemory) {
  auto call = Make(CallOf(Node("Square", {"x"})), {MakeVector<float>({1, 2, 3})},
                   MakeVector<float>({0, 0, 0}));
  ASSERT_TRUE(call.ok()) << call.status();
  for (int i = 0; i < 3; ++i) {
    (*call)->operand(0).flat<float>()(0) = static_cast<float>(i);
    ASSERT_TRUE((*call)->Run(nullptr).ok());
    EXPECT_EQ(ValuesOf<float>((*call)->result(0)), std::vector<float>({float(i * i), 4, 9}));
  }
}

TEST(KernelCallTest, ResultsThatAKernelForwardsAreCopied) {
  auto call = Make(CallOf(Node("Identity", {"x"})), {MakeVector<float>({1, 2, 3})},
                   MakeVector<float>({0, 0, 0}));
  ASSERT_TRUE(call.ok()) << call.status();
  ASSERT_TRUE((*call)->Run(nullptr).ok());
  EXPECT_EQ(ValuesOf<float>((*call)->result(0)), std::vector<float>({1, 2, 3}));
}

TEST(KernelCallTest, Convolution) {
  NodeDef node = Node("Conv2D", {"images", "filter"});
  tensorflow::AddNodeAttr("strides", std::vector<int>{1, 1, 1, 1}, &node);
  tensorflow::AddNodeAttr("dilations", std::vector<int>{1, 1, 1, 1}, &node);
  tensorflow::AddNodeAttr("explicit_paddings", std::vector<int>{}, &node);
  tensorflow::AddNodeAttr("padding", "VALID", &node);
  tensorflow::AddNodeAttr("data_format", "NHWC", &node);
  tensorflow::AddNodeAttr("use_cudnn_on_gpu", true, &node);
  const std::vector<float> image = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<float> filter = {1, -1, 2, 0.5};
  auto call = Make(
      CallOf(node),
      {MakeTensor(image, TensorShape({1, 3, 3, 1})), MakeTensor(filter, TensorShape({2, 2, 1, 1}))},
      Tensor(tensorflow::DT_FLOAT, TensorShape({1, 2, 2, 1})));
  ASSERT_TRUE(call.ok()) << call.status();
  ASSERT_TRUE((*call)->Run(nullptr).ok());
  for (int row = 0; row < 2; ++row) {
    for (int column = 0; column < 2; ++column) {
      float sum = 0;
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) sum += image[(row + i) * 3 + column + j] * filter[i * 2 + j];
      }
      EXPECT_FLOAT_EQ((*call)->result(0).flat<float>()(row * 2 + column), sum);
    }
  }
}

TEST(KernelCallTest, AKernelBeforeAddsTheLastInput) {
  KernelCall cube = CallOf(Node("Mul", {"x", "square"}));
  cube.before = Node("Square", {"x"});
  auto call = Make(cube, {MakeVector<float>({1, 2, 3})}, MakeVector<float>({0, 0, 0}));
  ASSERT_TRUE(call.ok()) << call.status();
  ASSERT_TRUE((*call)->Run(nullptr).ok());
  EXPECT_EQ(ValuesOf<float>((*call)->result(0)), std::vector<float>({1, 8, 27}));

  cube.before = Node("Mul", {"x", "y"});
  call = Make(cube, {MakeVector<float>({1, 2, 3})}, MakeVector<float>({0, 0, 0}));
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ((*call)->Run(nullptr).message(),
            "Op Mul model/layer: Kernel Mul takes 2 inputs; the program has 1 operands for it.");
}

TEST(KernelCallTest, ErrorsNameTheOp) {
  NodeDef check = Node("CheckNumerics", {"x"});
  tensorflow::AddNodeAttr("message", "found", &check);
  auto call = Make(CallOf(check), {MakeScalar<float>(NAN)}, MakeScalar<float>(0));
  ASSERT_TRUE(call.ok()) << call.status();
  const absl::Status status = (*call)->Run(nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("Op CheckNumerics model/layer: "), std::string::npos) << status;
  // The same kernel continues to work.
  (*call)->operand(0).scalar<float>()() = 3;
  ASSERT_TRUE((*call)->Run(nullptr).ok());
  EXPECT_EQ((*call)->result(0).scalar<float>()(), 3);
}

TEST(KernelCallTest, ResultsMustBeAsTheProgramExpects) {
  auto call = Make(CallOf(Node("Square", {"x"})), {MakeVector<float>({1, 2, 3})},
                   MakeVector<float>({0, 0}));
  ASSERT_TRUE(call.ok()) << call.status();
  const absl::Status status = (*call)->Run(nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(status.message().find("The kernel computed float[3]; the program expects float[2]"),
            std::string::npos)
      << status;
}

TEST(KernelCallTest, OperandsMustBeAsTheKernelExpects) {
  auto call = Make(CallOf(Node("Mul", {"x", "y"})), {MakeScalar<float>(1)}, MakeScalar<float>(0));
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ((*call)->Run(nullptr).message(),
            "Op Mul model/layer: Kernel Mul takes 2 inputs; the program has 1 operands for it.");
}

TEST(KernelCallTest, AnUnknownKernelFailsTheCompilation) {
  EXPECT_FALSE(
      Make(CallOf(Node("TpuExtTest>NoSuchOp", {"x"})), {MakeScalar<float>(1)}, MakeScalar<float>(0))
          .ok());
}

// oneDNN's kernels throw if the processor lacks an instruction.
REGISTER_OP("TpuExtTest>Throw").Input("x: T").Output("y: T").Attr("T: type");

class ThrowingKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* /*context*/) override {
    throw std::runtime_error("no such instruction");
  }
};

REGISTER_KERNEL_BUILDER(Name("TpuExtTest>Throw").Device(tensorflow::DEVICE_CPU), ThrowingKernel);

TEST(KernelCallTest, WhatAKernelThrowsIsAnError) {
  auto call = Make(CallOf(Node("TpuExtTest>Throw", {"x"})), {MakeVector<float>({1, 2, 3})},
                   MakeVector<float>({0, 0, 0}));
  ASSERT_TRUE(call.ok()) << call.status();
  const absl::Status status = (*call)->Run(nullptr);
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "model/layer")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "no such instruction")) << status;
}

}  // namespace
}  // namespace tf_tpu_ext
