#include "cc/ops/reachable_nodes.h"

#include <string>
#include <vector>

#include "cc/ops/op_names.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionDefLibrary;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::NodeDef;

NodeDef* AddNode(const std::string& op, FunctionDef* function) {
  NodeDef* node = function->add_node_def();
  node->set_op(op);
  node->set_name("node");
  return node;
}

class ReachableNodesTest : public ::testing::Test {
 protected:
  FunctionDef* AddFunction(const std::string& name) {
    FunctionDef* function = definitions_.add_function();
    function->mutable_signature()->set_name(name);
    return function;
  }
  bool Reaches(const std::string& function, const std::string& op) const {
    const FunctionLibraryDefinition library(tensorflow::OpRegistry::Global(), definitions_);
    return AnyReachableNode(function, library,
                            [&](const NodeDef& node) { return node.op() == op; });
  }

  FunctionDefLibrary definitions_;
};

TEST(FunctionsCalledByTest, ComeInOneOrder) {
  NodeDef node;
  std::vector<std::string> expected;
  for (const std::string name : {"d", "b", "f", "a", "e", "c"}) {
    tensorflow::NameAttrList function;
    function.set_name(name + " first");
    tensorflow::NameAttrList second;
    second.set_name(name + " second");
    tensorflow::AddNodeAttr(name, std::vector<tensorflow::NameAttrList>{function, second}, &node);
    function.set_name(name + " alone");
    tensorflow::AddNodeAttr(name + "_alone", function, &node);
  }
  for (const std::string name : {"a", "b", "c", "d", "e", "f"}) {
    expected.insert(expected.end(), {name + " first", name + " second", name + " alone"});
  }
  EXPECT_EQ(FunctionsCalledBy(node), expected);
}

TEST_F(ReachableNodesTest, FindsNodesOfTheFunctionAlone) {
  AddNode("Square", AddFunction("function"));
  AddNode("Neg", AddFunction("other"));
  EXPECT_TRUE(Reaches("function", "Square"));
  EXPECT_FALSE(Reaches("function", "Neg"));
}

TEST_F(ReachableNodesTest, FollowsEveryKindOfCall) {
  AddNode("direct", AddFunction("function"));
  NodeDef* branches = AddNode("Case", AddFunction("direct"));
  tensorflow::NameAttrList branch;
  branch.set_name("branch");
  tensorflow::AddNodeAttr("branches", std::vector<tensorflow::NameAttrList>{branch}, branches);
  branch.set_name("body");
  tensorflow::AddNodeAttr("body", branch, AddNode("While", AddFunction("branch")));
  AddNode("Neg", AddFunction("body"));
  EXPECT_TRUE(Reaches("function", "Neg"));
  EXPECT_FALSE(Reaches("function", "Square"));
}

TEST_F(ReachableNodesTest, EndsAtFunctionsThatCallThemselves) {
  AddNode("second", AddFunction("first"));
  AddNode("first", AddFunction("second"));
  EXPECT_FALSE(Reaches("first", "Neg"));
}

TEST_F(ReachableNodesTest, WhatTheLibraryLacksHasNoNodes) {
  EXPECT_FALSE(Reaches("function", "Neg"));
}

TEST_F(ReachableNodesTest, OutsideCompilationIsKnownByItsMark) {
  AddNode("Neg", AddFunction("plain"));
  tensorflow::AddNodeAttr(kOutsideCompilation, "0", AddNode("Neg", AddFunction("marked")));
  AddNode("marked", AddFunction("caller"));
  const FunctionLibraryDefinition library(tensorflow::OpRegistry::Global(), definitions_);
  EXPECT_TRUE(HoldsOutsideCompilation("caller", library));
  EXPECT_FALSE(HoldsOutsideCompilation("plain", library));
}

}  // namespace
}  // namespace tf_tpu_ext
