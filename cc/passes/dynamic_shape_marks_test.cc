#include "cc/passes/dynamic_shape_marks.h"

#include <string>

#include "gtest/gtest.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_builder.h"
#include "tensorflow/core/framework/node_def_util.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeDef;

constexpr char kMarkOp[] = "TPUAnnotateTensorsWithDynamicShape";

NodeDef Placeholder(const std::string& name) {
  NodeDef node;
  EXPECT_TRUE(tensorflow::NodeDefBuilder(name, "Placeholder")
                  .Attr("dtype", tensorflow::DT_INT32)
                  .Finalize(&node)
                  .ok());
  return node;
}

NodeDef Mark() {
  NodeDef node;
  node.set_name("mark");
  node.set_op(kMarkOp);
  tensorflow::AddNodeAttr("T", tensorflow::DataTypeVector(2, tensorflow::DT_INT32), &node);
  return node;
}

TEST(DynamicShapeMarksTest, GraphsGetAnIdentityInTheirPlace) {
  FunctionLibraryDefinition library(tensorflow::OpRegistry::Global(),
                                    tensorflow::FunctionDefLibrary());
  Graph graph(&library);
  absl::Status status;
  Node* const a = graph.AddNode(Placeholder("a"), &status);
  Node* const b = graph.AddNode(Placeholder("b"), &status);
  Node* const mark = graph.AddNode(Mark(), &status);
  ASSERT_TRUE(status.ok()) << status;
  NodeDef use;
  use.set_name("use");
  use.set_op("Identity");
  tensorflow::AddNodeAttr("T", tensorflow::DT_INT32, &use);
  Node* const user = graph.AddNode(use, &status);
  graph.AddEdge(a, 0, mark, 0);
  graph.AddEdge(b, 0, mark, 1);
  graph.AddEdge(mark, 1, user, 0);
  ASSERT_TRUE(DropDynamicShapeMarks(&graph, &library).ok());
  const tensorflow::Edge* edge = nullptr;
  ASSERT_TRUE(user->input_edge(0, &edge).ok());
  EXPECT_EQ(edge->src()->type_string(), "IdentityN");
  EXPECT_EQ(edge->src()->name(), "mark");
  EXPECT_EQ(edge->src_output(), 1);
  ASSERT_TRUE(edge->src()->input_edge(1, &edge).ok());
  EXPECT_EQ(edge->src(), b);
}

TEST(DynamicShapeMarksTest, FunctionsNameItsOutputs) {
  FunctionDef body;
  body.mutable_signature()->set_name("body");
  *body.add_node_def() = Mark();
  NodeDef& use = *body.add_node_def();
  use.set_name("use");
  use.set_op("Identity");
  use.add_input("mark:tpu_tensors:1");
  use.add_input("other:tpu_tensors:0");
  use.add_input("^mark");
  (*body.mutable_ret())["result"] = "mark:tpu_tensors:0";
  FunctionLibraryDefinition library(tensorflow::OpRegistry::Global(),
                                    tensorflow::FunctionDefLibrary());
  ASSERT_TRUE(library.AddFunctionDef(body).ok());
  Graph graph(&library);
  ASSERT_TRUE(DropDynamicShapeMarks(&graph, &library).ok());
  const FunctionDef* changed = library.Find("body");
  ASSERT_NE(changed, nullptr);
  EXPECT_EQ(changed->node_def(0).op(), "IdentityN");
  EXPECT_EQ(changed->node_def(1).input(0), "mark:output:1");
  EXPECT_EQ(changed->node_def(1).input(1), "other:tpu_tensors:0");
  EXPECT_EQ(changed->node_def(1).input(2), "^mark");
  EXPECT_EQ(changed->ret().at("result"), "mark:output:0");
}

}  // namespace
}  // namespace tf_tpu_ext
