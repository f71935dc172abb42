#include "cc/passes/compile_marks.h"

#include <string>

#include "cc/ops/op_names.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeDef;

class CompileMarksTest : public ::testing::Test {
 protected:
  CompileMarksTest()
      : library_(tensorflow::OpRegistry::Global(), tensorflow::FunctionDefLibrary()),
        graph_(&library_) {}

  static NodeDef Define(const std::string& name, bool in_computation, bool must_compile) {
    NodeDef node;
    node.set_name(name);
    node.set_op("NoOp");
    tensorflow::AddNodeAttr(kMustCompile, must_compile, &node);
    if (in_computation) tensorflow::AddNodeAttr(kTpuReplicate, "cluster_step", &node);
    return node;
  }

  const Node* Add(const NodeDef& definition) {
    absl::Status status;
    const Node* node = graph_.AddNode(definition, &status);
    EXPECT_TRUE(status.ok()) << status;
    return node;
  }

  FunctionLibraryDefinition library_;
  Graph graph_;
};

TEST_F(CompileMarksTest, TakesWhatContradictsFromTheGraph) {
  const Node* contradicts = Add(Define("a", /*in_computation=*/true, /*must_compile=*/false));
  const Node* agrees = Add(Define("b", /*in_computation=*/true, /*must_compile=*/true));
  const Node* on_host = Add(Define("c", /*in_computation=*/false, /*must_compile=*/false));
  ASSERT_TRUE(DropCompileMarks(&graph_, &library_).ok());
  EXPECT_EQ(contradicts->attrs().Find(kMustCompile), nullptr);
  EXPECT_NE(contradicts->attrs().Find(kTpuReplicate), nullptr);
  EXPECT_NE(agrees->attrs().Find(kMustCompile), nullptr);
  EXPECT_NE(on_host->attrs().Find(kMustCompile), nullptr);
}

TEST_F(CompileMarksTest, TakesWhatContradictsFromFunctions) {
  FunctionDef body;
  body.mutable_signature()->set_name("body");
  *body.add_node_def() = Define("a", /*in_computation=*/true, /*must_compile=*/false);
  *body.add_node_def() = Define("b", /*in_computation=*/true, /*must_compile=*/true);
  *body.add_node_def() = Define("c", /*in_computation=*/false, /*must_compile=*/false);
  ASSERT_TRUE(library_.AddFunctionDef(body).ok());
  ASSERT_TRUE(DropCompileMarks(&graph_, &library_).ok());
  const FunctionDef* changed = library_.Find("body");
  ASSERT_NE(changed, nullptr);
  ASSERT_EQ(changed->node_def_size(), 3);
  EXPECT_EQ(changed->node_def(0).attr().count(kMustCompile), 0);
  EXPECT_EQ(changed->node_def(0).attr().count(kTpuReplicate), 1);
  EXPECT_EQ(changed->node_def(1).attr().count(kMustCompile), 1);
  EXPECT_EQ(changed->node_def(2).attr().count(kMustCompile), 1);
}

}  // namespace
}  // namespace tf_tpu_ext
