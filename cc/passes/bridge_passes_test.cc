// Which graphs go through the bridge, according to the passes in TensorFlow's registries.
#include "cc/passes/bridge_passes.h"

#include <memory>
#include <string>

#include "cc/ops/op_names.h"
#include "gtest/gtest.h"
#include "llvm/ADT/StringRef.h"
#include "tensorflow/compiler/jit/flags.h"
#include "tensorflow/compiler/mlir/mlir_graph_optimization_pass.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/protobuf/config.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::ConfigProto;
using tensorflow::FunctionDefHelper;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::MlirOptimizationPassState;
using tensorflow::NodeDef;

constexpr char kName[] = "tf_tpu_ext_bridge";

class BridgePassesTest : public testing::Test {
 protected:
  BridgePassesTest()
      : library_(tensorflow::OpRegistry::Global(), tensorflow::FunctionDefLibrary()),
        graph_(&library_) {
    static const bool registered = [] {
      RegisterBridgePasses();
      return true;
    }();
    EXPECT_TRUE(registered);
  }

  static tensorflow::MlirOptimizationPass* OfFunctions() {
    for (const auto& registration : tensorflow::MlirOptimizationPassRegistry::Global().passes()) {
      if (registration.pass->name().str() == kName) return registration.pass.get();
    }
    return nullptr;
  }

  static tensorflow::MlirV1CompatOptimizationPass* OfSessions() {
    return tensorflow::MlirV1CompatOptimizationPassRegistry::Global().pass();
  }

  void AddNode(const std::string& op, bool replicated) {
    NodeDef node;
    node.set_name(op);
    node.set_op(op);
    if (replicated) AddNodeAttr(kTpuReplicate, "cluster", &node);
    if (op == "TPUReplicateMetadata") AddNodeAttr("num_replicas", 1, &node);
    const tensorflow::OpDef* definition = nullptr;
    ASSERT_TRUE(library_.LookUpOpDef(op, &definition).ok());
    tensorflow::AddDefaultsToNodeDef(*definition, &node);
    ASSERT_TRUE(graph_.AddNode(node).ok());
  }

  MlirOptimizationPassState OfFunctionPass(const ConfigProto& config = ConfigProto()) {
    return OfFunctions()->GetPassState(&devices_, config, graph_, library_);
  }
  MlirOptimizationPassState OfSessionPass(const ConfigProto& config = ConfigProto()) {
    return OfSessions()->GetPassState(&devices_, config, graph_, library_);
  }

  const tensorflow::DeviceSet devices_;
  FunctionLibraryDefinition library_;
  Graph graph_;
};

TEST_F(BridgePassesTest, BothRegistriesHoldThePass) {
  EXPECT_NE(OfFunctions(), nullptr);
  ASSERT_NE(OfSessions(), nullptr);
  EXPECT_EQ(OfSessions()->name().str(), kName);
}

TEST_F(BridgePassesTest, OtherGraphsAreLeftAsTheyAre) {
  AddNode("NoOp", /*replicated=*/false);
  EXPECT_EQ(OfFunctionPass(), MlirOptimizationPassState::Disabled);
  EXPECT_EQ(OfSessionPass(), MlirOptimizationPassState::Disabled);
  // Even if the program asks for the bridge.
  ConfigProto on;
  on.mutable_experimental()->set_mlir_bridge_rollout(
      tensorflow::ConfigProto::Experimental::MLIR_BRIDGE_ROLLOUT_ENABLED);
  EXPECT_EQ(OfFunctionPass(on), MlirOptimizationPassState::Disabled);
  EXPECT_EQ(OfSessionPass(on), MlirOptimizationPassState::Disabled);
}

TEST_F(BridgePassesTest, GraphsOfReplicatedComputationsAreTaken) {
  AddNode("TPUReplicateMetadata", /*replicated=*/true);
  EXPECT_EQ(OfFunctionPass(), MlirOptimizationPassState::Enabled);
  EXPECT_EQ(OfSessionPass(), MlirOptimizationPassState::Enabled);
  // Nothing else can run them, so no switch matters.
  ConfigProto off;
  off.mutable_experimental()->set_mlir_bridge_rollout(
      tensorflow::ConfigProto::Experimental::MLIR_BRIDGE_ROLLOUT_DISABLED);
  EXPECT_EQ(OfFunctionPass(off), MlirOptimizationPassState::Enabled);
  EXPECT_EQ(OfSessionPass(off), MlirOptimizationPassState::Enabled);
}

TEST_F(BridgePassesTest, FunctionsAreTakenOnlyWithTheirDevices) {
  AddNode("TPUReplicateMetadata", /*replicated=*/true);
  EXPECT_EQ(OfFunctions()->GetPassState(nullptr, ConfigProto(), graph_, library_),
            MlirOptimizationPassState::Disabled);
}

TEST_F(BridgePassesTest, VariablesKeepTheirLayout) {
  AddNode("TPUReplicateMetadata", /*replicated=*/true);
  EXPECT_EQ(OfSessionPass(), MlirOptimizationPassState::Enabled);
  EXPECT_FALSE(
      tensorflow::GetMlirCommonFlags()->tf_mlir_enable_tpu_variable_runtime_reformatting_pass);
}

}  // namespace
}  // namespace tf_tpu_ext
