#include "cc/passes/stale_functions.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tensorflow/core/framework/node_def_util.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;

// Functions in a library that contain only calls.
class StaleFunctionsTest : public ::testing::Test {
 protected:
  StaleFunctionsTest()
      : library_(tensorflow::OpRegistry::Global(), tensorflow::FunctionDefLibrary()),
        graph_(&library_) {}

  void Add(const std::string& name, const std::vector<std::string>& calls = {}) {
    FunctionDef function;
    function.mutable_signature()->set_name(name);
    for (const std::string& callee : calls) {
      tensorflow::NodeDef* node = function.add_node_def();
      node->set_name(callee);
      node->set_op(callee);
    }
    ASSERT_TRUE(library_.AddFunctionDef(function).ok());
  }

  void Call(const std::string& name) {
    tensorflow::NodeDef node;
    node.set_name(name);
    node.set_op(name);
    ASSERT_TRUE(graph_.AddNode(std::move(node)).ok());
  }

  FunctionNames Drop() {
    absl::StatusOr<FunctionNames> given = DropStaleFunctions(graph_, &library_);
    EXPECT_TRUE(given.ok()) << given.status();
    return *given;
  }

  FunctionLibraryDefinition library_;
  Graph graph_;
};

TEST_F(StaleFunctionsTest, WhatPassesMadeGoesWithTheNextRun) {
  Add("user");
  for (const char* made : {"first", "second", "third"}) {
    const FunctionNames given = Drop();
    EXPECT_EQ(given, FunctionNames({"user"}));
    Add(made);
    ASSERT_TRUE(MarkNewFunctions(given, &library_).ok());
    EXPECT_EQ(library_.num_functions(), 2);
  }
}

TEST_F(StaleFunctionsTest, WhatTheGraphCallsStays) {
  Add("inner");
  Add("outer", {"inner"});
  Add("uncalled");
  ASSERT_TRUE(MarkNewFunctions({}, &library_).ok());
  Call("outer");
  EXPECT_EQ(Drop(), FunctionNames({"inner", "outer"}));
}

TEST_F(StaleFunctionsTest, FunctionsOfTheUserStay) {
  Add("later");
  EXPECT_EQ(Drop(), FunctionNames({"later"}));
  ASSERT_TRUE(MarkNewFunctions({"later"}, &library_).ok());
  EXPECT_EQ(Drop(), FunctionNames({"later"}));
}

}  // namespace
}  // namespace tf_tpu_ext
