// The rewrite of eager calls, which can be reached only through TensorFlow's registry.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/machine.h"
#include "cc/base/process.h"
#include "cc/ops/op_names.h"
#include "cc/runtime/caller_executor.h"
#include "gtest/gtest.h"
#include "tensorflow/core/common_runtime/device_factory.h"
#include "tensorflow/core/common_runtime/device_mgr.h"
#include "tensorflow/core/common_runtime/eager/context.h"
#include "tensorflow/core/common_runtime/eager/eager_op_rewrite_registry.h"
#include "tensorflow/core/common_runtime/eager/eager_operation.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/public/session_options.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::EagerContext;
using tensorflow::EagerOperation;
using tensorflow::EagerOpRewriteRegistry;
using tensorflow::FunctionDef;

class RunOnCallerTest : public ::testing::Test {
 protected:
  RunOnCallerTest() {
    process_.machine = &machine_;
    Process::Install(&process_);
    std::vector<std::unique_ptr<tensorflow::Device>> devices;
    devices.push_back(tensorflow::DeviceFactory::NewDevice("CPU", tensorflow::SessionOptions(),
                                                           "/job:localhost/replica:0/task:0"));
    context_ =
        new EagerContext(tensorflow::SessionOptions(), tensorflow::DEVICE_PLACEMENT_SILENT,
                         /*async=*/false, new tensorflow::StaticDeviceMgr(std::move(devices)),
                         /*device_mgr_owned=*/true, /*rendezvous=*/nullptr);
  }

  ~RunOnCallerTest() override { context_->Release(); }

  // A function with one op, which belongs to a computation or calls another function.
  void Define(const std::string& name, const std::string& op, bool is_of_computation) {
    FunctionDef function;
    function.mutable_signature()->set_name(name);
    tensorflow::NodeDef* node = function.add_node_def();
    node->set_name("node");
    node->set_op(op);
    if (is_of_computation) tensorflow::AddNodeAttr(kTpuReplicate, "step", node);
    const absl::Status status = context_->AddFunctionDef(function);
    ASSERT_TRUE(status.ok()) << status;
  }

  // The executor of a call to the op after the rewrite; empty for the usual one.
  std::string ExecutorOf(const std::string& op, const std::string& chosen = "") {
    EagerOperation operation(context_);
    EXPECT_TRUE(operation.Reset(op.c_str(), nullptr).ok());
    if (!chosen.empty()) operation.MutableAttrs()->Set("executor_type", chosen);
    operation.MutableAttrs()->Set("config_proto", "kept");
    std::unique_ptr<EagerOperation> replaced;
    const absl::Status status = EagerOpRewriteRegistry::Global()->RunRewrite(
        EagerOpRewriteRegistry::PRE_EXECUTION, &operation, &replaced);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(replaced, nullptr);
    tensorflow::AttrValueMap attributes;
    operation.Attrs().FillAttrValueMapWithoutDefaults(&attributes);
    EXPECT_EQ(attributes["config_proto"].s(), "kept");
    const auto executor = attributes.find("executor_type");
    return executor == attributes.end() ? "" : executor->second.s();
  }

  Machine machine_;
  Process process_;
  EagerContext* context_ = nullptr;
};

TEST_F(RunOnCallerTest, FunctionsWithComputationsStartOnTheCaller) {
  Define("step", "NoOp", /*is_of_computation=*/true);
  EXPECT_EQ(ExecutorOf("step"), kCallerExecutor);
  // A second call uses what the first has found.
  EXPECT_EQ(ExecutorOf("step"), kCallerExecutor);
}

TEST_F(RunOnCallerTest, SoDoCallersOfSuchFunctions) {
  Define("step", "NoOp", /*is_of_computation=*/true);
  Define("loop", "step", /*is_of_computation=*/false);
  EXPECT_EQ(ExecutorOf("loop"), kCallerExecutor);
}

TEST_F(RunOnCallerTest, OtherFunctionsAndOpsAreLeftAsTheyAre) {
  Define("plain", "NoOp", /*is_of_computation=*/false);
  EXPECT_EQ(ExecutorOf("plain"), "");
  EXPECT_EQ(ExecutorOf("NoOp"), "");
}

TEST_F(RunOnCallerTest, AnExecutorThatTheUserChoseStays) {
  Define("step", "NoOp", /*is_of_computation=*/true);
  EXPECT_EQ(ExecutorOf("step", "SINGLE_THREADED_EXECUTOR"), "SINGLE_THREADED_EXECUTOR");
}

TEST_F(RunOnCallerTest, TheMachineMaySayNo) {
  Define("step", "NoOp", /*is_of_computation=*/true);
  MachineOptions options;
  options.programs.launch_from_host = false;
  ASSERT_TRUE(machine_.SetOptions(options).ok());
  EXPECT_EQ(ExecutorOf("step"), "");
}

}  // namespace
}  // namespace tf_tpu_ext
