// Tests tf.function(jit_compile=True) on a core: function calls, compiled as single-core programs.
#include "cc/kernels/jit_kernel.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/base/process.h"
#include "cc/base/tensor_testing.h"
#include "cc/kernels/kernel_testing.h"
#include "cc/runtime/program_cache.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionDefHelper;
using tensorflow::Tensor;
using tensorflow::TensorShape;

using Floats = std::vector<float>;

class JitKernelTest : public testing::Test {
 protected:
  JitKernelTest() {
    static const bool registered = [] {
      RegisterJitKernels();
      return true;
    }();
    EXPECT_TRUE(registered);
  }

  void Define(const FunctionDef& function) {
    const absl::Status status = runner_.AddFunction(function);
    ASSERT_TRUE(status.ok()) << status;
  }

  static tensorflow::NodeDef CallOf(const std::string& function) {
    return KernelRunner::Node(
        function, [](tensorflow::NodeDef* node) { AddNodeAttr("_XlaMustCompile", true, node); });
  }

  absl::StatusOr<std::vector<Tensor>> Call(const std::string& function, const std::string& device,
                                           std::vector<Tensor> arguments) {
    return runner_.Run(CallOf(function), device, std::move(arguments));
  }

  static size_t NumPrograms() { return Process::Get().programs->Records().size(); }

  KernelRunner runner_;
};

// y = x * x + x
FunctionDef Polynomial() {
  return FunctionDefHelper::Create(
      "polynomial", {"x: float"}, {"y: float"}, {},
      {{{"square"}, "Mul", {"x", "x"}, {{"T", tensorflow::DT_FLOAT}}},
       {{"sum"}, "AddV2", {"square:z:0", "x"}, {{"T", tensorflow::DT_FLOAT}}}},
      {{"y", "sum:z:0"}});
}

// Adds x to the variable v; y is its new value.
FunctionDef AddToVariable() {
  return FunctionDefHelper::Create(
      "add_to_variable", {"v: resource", "x: float"}, {"y: float"}, {},
      {{{"add"}, "AssignAddVariableOp", {"v", "x"}, {{"dtype", tensorflow::DT_FLOAT}}},
       {{"read"}, "ReadVariableOp", {"v"}, {{"dtype", tensorflow::DT_FLOAT}}, {"add"}}},
      {{"y", "read:value:0"}});
}

TEST_F(JitKernelTest, ComputesOnEachCore) {
  Define(Polynomial());
  const Floats x = {0, 1, -2, 0.5, 3};
  Floats expected;
  for (float value : x) expected.push_back(value * value + value);
  for (int core = 0; core < KernelRunner::kCores; ++core) {
    const auto results = Call("polynomial", absl::StrCat("TPU:", core), {MakeVector(x)});
    ASSERT_TRUE(results.ok()) << results.status();
    ASSERT_EQ(results->size(), 1);
    EXPECT_EQ(ValuesOf<float>((*results)[0]), expected);
  }
}

TEST_F(JitKernelTest, EachShapeIsCompiledOnce) {
  Define(Polynomial());
  const auto kernel = runner_.MakeKernel(CallOf("polynomial"), "TPU:0", 1);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const size_t before = NumPrograms();
  for (int round = 0; round < 2; ++round) {
    for (const TensorShape& shape : {TensorShape({}), TensorShape({3}), TensorShape({3, 1})}) {
      Tensor x(tensorflow::DT_FLOAT, shape);
      x.flat<float>().setConstant(2);
      const auto call = runner_.Start(*kernel, "TPU:0", {x}, {});
      ASSERT_TRUE(call.ok()) << call.status();
      const auto results = (*call)->Wait();
      ASSERT_TRUE(results.ok()) << results.status();
      EXPECT_EQ((*results)[0].shape(), shape);
      EXPECT_EQ(ValuesOf<float>((*results)[0]), Floats(shape.num_elements(), 6));
    }
    EXPECT_EQ(NumPrograms(), before + 3) << round;
  }
}

TEST_F(JitKernelTest, ArgumentsThatMustBeKnownAreCompiledIn) {
  Define(
      FunctionDefHelper::Create("reshape", {"x: float", "shape: int32"}, {"y: float"}, {},
                                {{{"y"},
                                  "Reshape",
                                  {"x", "shape"},
                                  {{"T", tensorflow::DT_FLOAT}, {"Tshape", tensorflow::DT_INT32}}}},
                                {{"y", "y:output:0"}}));
  const auto kernel = runner_.MakeKernel(CallOf("reshape"), "TPU:1", 2);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const size_t before = NumPrograms();
  for (int round = 0; round < 2; ++round) {
    for (const std::vector<int32_t>& sizes : {std::vector<int32_t>({2, 3}), {3, 2}}) {
      const Floats values = {1, 2, 3, 4, 5, static_cast<float>(round)};
      const auto call =
          runner_.Start(*kernel, "TPU:1", {MakeVector(values), MakeVector(sizes)}, {});
      ASSERT_TRUE(call.ok()) << call.status();
      const auto results = (*call)->Wait();
      ASSERT_TRUE(results.ok()) << results.status();
      EXPECT_EQ((*results)[0].shape(), TensorShape({sizes[0], sizes[1]}));
      EXPECT_EQ(ValuesOf<float>((*results)[0]), values);
    }
    EXPECT_EQ(NumPrograms(), before + 2) << round;
  }
}

TEST_F(JitKernelTest, VariablesAreReadAndWritten) {
  Define(AddToVariable());
  const Tensor v = runner_.Variable("TPU:2", "jit", {2});
  ASSERT_TRUE(runner_.Assign("TPU:2", v, MakeVector<float>({1, 2})).ok());
  for (int step = 1; step <= 3; ++step) {
    const auto results = Call("add_to_variable", "TPU:2", {v, MakeVector<float>({10, 20})});
    ASSERT_TRUE(results.ok()) << results.status();
    const Floats expected = {1 + 10.0f * step, 2 + 20.0f * step};
    EXPECT_EQ(ValuesOf<float>((*results)[0]), expected);
    EXPECT_EQ(ValuesOf<float>(*runner_.Read("TPU:2", v)), expected);
  }
}

TEST_F(JitKernelTest, VariablesMustBeThere) {
  Define(AddToVariable());
  const Tensor missing = runner_.Variable("TPU:1", "jit_missing", {2});
  const absl::Status status =
      Call("add_to_variable", "TPU:1", {missing, MakeVector<float>({1, 2})}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StartsWith(status.message(), "Variable 'jit_missing' does not exist on "))
      << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "TPU:1. Create it there.")) << status;
}

TEST_F(JitKernelTest, HandlesPassThrough) {
  Define(FunctionDefHelper::Create(
      "give_back", {"v: resource", "x: float"}, {"same: resource", "y: float"}, {},
      {{{"neg"}, "Neg", {"x"}, {{"T", tensorflow::DT_FLOAT}}}}, {{"same", "v"}, {"y", "neg:y:0"}}));
  const Tensor v = runner_.Variable("TPU:0", "jit_handle", {2});
  ASSERT_TRUE(runner_.Assign("TPU:0", v, MakeVector<float>({1, 2})).ok());
  const auto results = Call("give_back", "TPU:0", {v, MakeScalar<float>(3)});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0].scalar<tensorflow::ResourceHandle>()().name(), "jit_handle");
  EXPECT_EQ((*results)[1].scalar<float>()(), -3);
}

TEST_F(JitKernelTest, WhatXlaDoesNotKnowIsAnErrorEachTime) {
  Define(FunctionDefHelper::Create("as_string", {"x: float"}, {"y: string"}, {},
                                   {{{"y"}, "AsString", {"x"}, {{"T", tensorflow::DT_FLOAT}}}},
                                   {{"y", "y:output:0"}}));
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = Call("as_string", "TPU:0", {MakeScalar<float>(1)}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(status.message(), "AsString")) << status;
  }
}

TEST_F(JitKernelTest, FunctionsOfOneNameInTwoLibrariesAreTwo) {
  Define(Polynomial());
  KernelRunner other;
  FunctionDef negative = FunctionDefHelper::Create(
      "polynomial", {"x: float"}, {"y: float"}, {},
      {{{"neg"}, "Neg", {"x"}, {{"T", tensorflow::DT_FLOAT}}}}, {{"y", "neg:y:0"}});
  ASSERT_TRUE(other.AddFunction(negative).ok());
  const Tensor x = MakeScalar<float>(4);
  EXPECT_EQ(Call("polynomial", "TPU:0", {x})->at(0).scalar<float>()(), 20);
  const auto negated = other.Run(CallOf("polynomial"), "TPU:0", {x});
  ASSERT_TRUE(negated.ok()) << negated.status();
  EXPECT_EQ((*negated)[0].scalar<float>()(), -4);
}

}  // namespace
}  // namespace tf_tpu_ext
