#include "cc/compiler/lower/rewrite_functions.h"

#include <string>
#include <vector>

#include "cc/ops/op_names.h"
#include "cc/program/host_function_source.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/types.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::NodeDef;

class RewriteFunctionsTest : public ::testing::Test {
 protected:
  RewriteFunctionsTest()
      : library_(tensorflow::OpRegistry::Global(), tensorflow::FunctionDefLibrary()) {}

  void Define(const std::string& name, const std::vector<NodeDef>& nodes) {
    FunctionDef function;
    function.mutable_signature()->set_name(name);
    for (const NodeDef& node : nodes) *function.add_node_def() = node;
    ASSERT_TRUE(library_.AddFunctionDef(function).ok());
  }

  const NodeDef& NodeOf(const std::string& function, int number) const {
    return library_.Find(function)->node_def(number);
  }

  FunctionLibraryDefinition library_;
};

NodeDef Node(const std::string& op) {
  NodeDef node;
  node.set_name("node_of_" + op);
  node.set_op(op);
  return node;
}

NodeDef HostCompute(const std::string& send_key) {
  NodeDef node = Node(kHostComputeOp);
  (*node.mutable_attr())["send_key"].set_s(send_key);
  node.mutable_experimental_debug_info()->add_original_func_names("mark");
  return node;
}

NodeDef HostCall(const std::string& function) {
  NodeDef node = Node(kHostCallOp);
  auto& attributes = *node.mutable_attr();
  attributes["function"].set_s(function);
  attributes["library"].set_s("library of " + function);
  attributes["source"].set_s("source of " + function);
  return node;
}

TEST_F(RewriteFunctionsTest, NothingIsPlacedAnyMore) {
  NodeDef placed = Node("Neg");
  placed.set_device("/device:TPU_REPLICATED_CORE:1");
  placed.add_input("x");
  (*placed.mutable_attr())["T"].set_type(tensorflow::DT_FLOAT);
  (*placed.mutable_attr())[kShardingAttribute].set_s("sharding");
  (*placed.mutable_attr())["_XlaShardingV2"].set_s("sharding");
  NodeDef sharding = Node("XlaSharding");
  sharding.add_input("y");
  (*sharding.mutable_attr())["T"].set_type(tensorflow::DT_INT32);
  (*sharding.mutable_attr())["sharding"].set_s("sharding");
  (*sharding.mutable_attr())["unspecified_dims"].mutable_list();
  Define("f", {placed});
  Define("g", {sharding});
  ASSERT_TRUE(RemovePlacement(&library_).ok());
  EXPECT_EQ(NodeOf("f", 0).device(), "");
  EXPECT_EQ(NodeOf("f", 0).attr().size(), 1u);
  EXPECT_EQ(NodeOf("f", 0).attr().at("T").type(), tensorflow::DT_FLOAT);
  EXPECT_EQ(NodeOf("f", 0).input(0), "x");
  // An op that only places a value becomes an identity.
  EXPECT_EQ(NodeOf("g", 0).op(), "Identity");
  EXPECT_EQ(NodeOf("g", 0).attr().size(), 1u);
  EXPECT_EQ(NodeOf("g", 0).attr().at("T").type(), tensorflow::DT_INT32);
  EXPECT_EQ(NodeOf("g", 0).input(0), "y");
}

TEST_F(RewriteFunctionsTest, TheFirstPartOfAClusterCountsItsCalls) {
  Define("f", {HostCompute("a0"), HostCompute("b"), HostCompute("a1"), HostCompute("unmarked")});
  Define("g", {HostCompute("a0")});
  ASSERT_TRUE(
      CountClusters({{"a0", "cluster a"}, {"a1", "cluster a"}, {"b", "cluster b"}}, &library_)
          .ok());
  const auto counted = [this](const std::string& function, int number) {
    const auto& attributes = NodeOf(function, number).attr();
    EXPECT_FALSE(NodeOf(function, number).has_experimental_debug_info());
    return attributes.at("counted_as").s() + (attributes.at("counts_call").b() ? "" : ", once");
  };
  EXPECT_EQ(counted("f", 0), "cluster a");
  EXPECT_EQ(counted("f", 1), "cluster b");
  EXPECT_EQ(counted("f", 2), "cluster a, once");
  // Each function counts its own calls.
  EXPECT_EQ(counted("g", 0), "cluster a");
  EXPECT_EQ(NodeOf("f", 3).attr().count("counted_as"), 0u);
  EXPECT_TRUE(NodeOf("f", 3).has_experimental_debug_info());
}

TEST_F(RewriteFunctionsTest, WithoutMarksNothingIsCounted) {
  Define("f", {HostCompute("a")});
  ASSERT_TRUE(CountClusters({}, &library_).ok());
  ASSERT_TRUE(CountClusters({{"b", "cluster b"}}, &library_).ok());
  EXPECT_EQ(NodeOf("f", 0).attr().count("counted_as"), 0u);
}

TEST_F(RewriteFunctionsTest, HostFunctionsAreNumberedAndTakenOut) {
  Define("f", {HostCall("one"), Node("Neg"), HostCall("two"), HostCall("one")});
  std::vector<HostFunctionSource> functions;
  ASSERT_TRUE(TakeHostFunctions(&library_, &functions).ok());
  ASSERT_EQ(functions.size(), 2u);
  EXPECT_EQ(functions[0].name, "one");
  EXPECT_EQ(functions[0].library, "library of one");
  EXPECT_EQ(functions[1].name, "two");
  const auto number = [this](int node) {
    EXPECT_EQ(NodeOf("f", node).attr().at("library").s(), "");
    return NodeOf("f", node).attr().at(kHostFunctionNumber).i();
  };
  EXPECT_EQ(number(0), 0);
  EXPECT_EQ(number(2), 1);
  EXPECT_EQ(number(3), 0);
  EXPECT_EQ(NodeOf("f", 1).attr().size(), 0u);
}

TEST_F(RewriteFunctionsTest, FunctionsThatCallTheSameHostFunctionShareItsNumber) {
  Define("f", {HostCall("one")});
  Define("g", {HostCall("one")});
  std::vector<HostFunctionSource> functions;
  ASSERT_TRUE(TakeHostFunctions(&library_, &functions).ok());
  EXPECT_EQ(functions.size(), 1u);
  EXPECT_EQ(NodeOf("f", 0).attr().at(kHostFunctionNumber).i(), 0);
  EXPECT_EQ(NodeOf("g", 0).attr().at(kHostFunctionNumber).i(), 0);
}

NodeDef CallOfModule(const std::vector<std::string>& platforms) {
  NodeDef node = Node("XlaCallModule");
  auto* list = (*node.mutable_attr())["platforms"].mutable_list();
  for (const std::string& platform : platforms) list->add_s(platform);
  return node;
}

std::vector<std::string> PlatformsOf(const NodeDef& node) {
  const auto& list = node.attr().at("platforms").list().s();
  return {list.begin(), list.end()};
}

using Platforms = std::vector<std::string>;

TEST_F(RewriteFunctionsTest, ModulesForTpusRunAsOnATpu) {
  Define("f", {CallOfModule({"CPU", "CUDA", "TPU"}), CallOfModule({"TPU"}), CallOfModule({"CPU"}),
               CallOfModule({}), Node("Neg")});
  ASSERT_TRUE(ChooseTpuPlatforms(&library_).ok());
  // The TPU is at the index that the compiler uses for the CPU.
  EXPECT_EQ(PlatformsOf(NodeOf("f", 0)), (Platforms{"TPU", "CUDA", "CPU"}));
  EXPECT_EQ(PlatformsOf(NodeOf("f", 1)), (Platforms{"CPU"}));
  EXPECT_EQ(PlatformsOf(NodeOf("f", 2)), (Platforms{"CPU"}));
  EXPECT_TRUE(PlatformsOf(NodeOf("f", 3)).empty());
}

}  // namespace
}  // namespace tf_tpu_ext
