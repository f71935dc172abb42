// Tests function calls on a core that the caller chooses, through TPUPartitionedCall. The functions
// hold no compiled program: the tests are about which instance runs, on which devices, and with
// what.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/blocking_counter.h"
#include "cc/kernels/kernel_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/threadpool.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AddNodeAttr;
using tensorflow::DataType;
using tensorflow::FunctionDef;
using tensorflow::NodeDef;
using tensorflow::Tensor;

Tensor Scalar(float value) { return Tensor(value); }

Tensor Ordinal(int32_t core) { return Tensor(core); }

class CoreFunctionTest : public ::testing::Test {
 protected:
  // y = op(x) for floats.
  void Define(const std::string& name, const std::string& op, int num_replicas = 0) {
    FunctionDef function;
    function.mutable_signature()->set_name(name);
    auto* argument = function.mutable_signature()->add_input_arg();
    argument->set_name("x");
    argument->set_type(tensorflow::DT_FLOAT);
    auto* result = function.mutable_signature()->add_output_arg();
    result->set_name("y");
    result->set_type(tensorflow::DT_FLOAT);
    NodeDef* node = function.add_node_def();
    node->set_name("node");
    node->set_op(op);
    node->add_input("x");
    AddNodeAttr("T", tensorflow::DT_FLOAT, node);
    (*function.mutable_ret())["y"] = "node:y:0";
    if (num_replicas > 0) {
      NodeDef* metadata = function.add_node_def();
      metadata->set_name("metadata");
      metadata->set_op("TPUReplicateMetadata");
      AddNodeAttr("num_replicas", num_replicas, metadata);
    }
    const absl::Status status = runner_.AddFunction(function);
    ASSERT_TRUE(status.ok()) << status;
  }

  absl::StatusOr<std::vector<Tensor>> Call(const std::string& function, const Tensor& x,
                                           int32_t core) {
    return runner_.Run(
        KernelRunner::Node("TPUPartitionedCall",
                           [&function](NodeDef* node) {
                             const std::vector<DataType> types = {tensorflow::DT_FLOAT};
                             AddNodeAttr("Tin", types, node);
                             AddNodeAttr("Tout", types, node);
                             tensorflow::NameAttrList callee;
                             callee.set_name(function);
                             AddNodeAttr("f", callee, node);
                           }),
        "CPU:0", {x, Ordinal(core)});
  }

  KernelRunner runner_;
};

TEST_F(CoreFunctionTest, GivesWhatTheFunctionReturns) {
  Define("negative", "Neg");
  for (int core = 0; core < KernelRunner::kCores; ++core) {
    const auto results = Call("negative", Scalar(2.5), core);
    ASSERT_TRUE(results.ok()) << results.status();
    ASSERT_EQ(results->size(), 1);
    EXPECT_EQ((*results)[0].scalar<float>()(), -2.5);
  }
}

TEST_F(CoreFunctionTest, RefusesCoresThatAreNotThere) {
  Define("negative", "Neg");
  for (int core : {-1, KernelRunner::kCores}) {
    const auto results = Call("negative", Scalar(1), core);
    EXPECT_TRUE(absl::IsInvalidArgument(results.status())) << results.status();
    EXPECT_TRUE(absl::StrContains(results.status().message(), "There is no core"))
        << results.status();
    EXPECT_TRUE(absl::StrContains(results.status().message(), "which calls negative on core"))
        << results.status();
  }
}

TEST_F(CoreFunctionTest, RefusesComputationsOfSeveralReplicas) {
  Define("replicated", "Neg", /*num_replicas=*/2);
  const auto results = Call("replicated", Scalar(1), 0);
  EXPECT_TRUE(absl::StrContains(results.status().message(), "must have one replica"))
      << results.status();
}

TEST_F(CoreFunctionTest, AFailingFunctionFailsTheCall) {
  FunctionDef failing;
  failing.mutable_signature()->set_name("failing");
  for (auto* argument : {failing.mutable_signature()->add_input_arg(),
                         failing.mutable_signature()->add_output_arg()}) {
    argument->set_type(tensorflow::DT_FLOAT);
  }
  failing.mutable_signature()->mutable_input_arg(0)->set_name("x");
  failing.mutable_signature()->mutable_output_arg(0)->set_name("y");
  NodeDef* check = failing.add_node_def();
  check->set_name("check");
  check->set_op("CheckNumerics");
  check->add_input("x");
  AddNodeAttr("T", tensorflow::DT_FLOAT, check);
  AddNodeAttr("message", "found while testing", check);
  (*failing.mutable_ret())["y"] = "check:output:0";
  ASSERT_TRUE(runner_.AddFunction(failing).ok());
  const auto infinite = Call("failing", Scalar(1 / 0.0f), 0);
  EXPECT_TRUE(absl::StrContains(infinite.status().message(), "found while testing"))
      << infinite.status();
  EXPECT_TRUE(Call("failing", Scalar(1), 0).ok());
}

TEST_F(CoreFunctionTest, CallsFromThreadsAreApart) {
  Define("negative", "Neg");
  constexpr int kCalls = 32;
  absl::BlockingCounter calls(kCalls);
  std::vector<float> results(kCalls, 0);
  tensorflow::thread::ThreadPool threads(tensorflow::Env::Default(), "callers", 4);
  for (int i = 0; i < kCalls; ++i) {
    threads.Schedule([&, i] {
      const auto result =
          Call("negative", Scalar(static_cast<float>(i + 1)), i % KernelRunner::kCores);
      if (result.ok()) results[i] = (*result)[0].scalar<float>()();
      calls.DecrementCount();
    });
  }
  calls.Wait();
  for (int i = 0; i < kCalls; ++i) EXPECT_EQ(results[i], -(i + 1)) << i;
}

}  // namespace
}  // namespace tf_tpu_ext
