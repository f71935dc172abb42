#include "cc/passes/host_cluster.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "cc/ops/host_update_ops.h"
#include "cc/ops/op_names.h"
#include "cc/passes/host_function.h"
#include "cc/passes/host_updates.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AddNodeAttr;
using tensorflow::DataType;
using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeDef;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;

constexpr char kComputation[] = "step";

// A graph of float vectors of two elements, with some of its nodes in the cluster.
class HostClusterTest : public ::testing::Test {
 protected:
  HostClusterTest()
      : library_(tensorflow::OpRegistry::Global(), tensorflow::FunctionDefLibrary()),
        graph_(&library_) {
    RegisterHostUpdates();
    cluster_.owner = cluster_.computation = kComputation;
    cluster_.name = "0";
  }

  template <typename Fill>
  Node* Add(const std::string& name, const std::string& op, const std::vector<Node*>& inputs,
            Fill fill) {
    NodeDef definition;
    definition.set_name(name);
    definition.set_op(op);
    for (const Node* input : inputs) definition.add_input(input->name());
    AddNodeAttr(kTpuReplicate, kComputation, &definition);
    fill(&definition);
    const tensorflow::OpDef* op_def = nullptr;
    EXPECT_TRUE(library_.LookUpOpDef(op, &op_def).ok());
    tensorflow::AddDefaultsToNodeDef(*op_def, &definition);
    absl::StatusOr<Node*> node = graph_.AddNode(std::move(definition));
    EXPECT_TRUE(node.ok()) << node.status();
    for (size_t i = 0; i < inputs.size(); ++i) {
      graph_.AddEdge(inputs[i], 0, *node, static_cast<int>(i));
    }
    shapes_[name] = std::vector<tensorflow::InferredShape>((*node)->num_outputs());
    for (auto& shape : shapes_[name]) shape.shape = PartialTensorShape({2});
    return *node;
  }

  Node* Operation(const std::string& name, const std::string& op,
                  const std::vector<Node*>& inputs) {
    return Add(name, op, inputs,
               [](NodeDef* node) { AddNodeAttr("T", tensorflow::DT_FLOAT, node); });
  }

  Node* Placeholder(const std::string& name, DataType type = tensorflow::DT_FLOAT) {
    return Add(name, "Placeholder", {},
               [type](NodeDef* node) { AddNodeAttr("dtype", type, node); });
  }

  Node* Constant(const std::string& name, const Tensor& value) {
    return Add(name, "Const", {}, [&value](NodeDef* node) {
      AddNodeAttr("dtype", value.dtype(), node);
      AddNodeAttr("value", value, node);
    });
  }

  void Include(const std::vector<Node*>& nodes) {
    for (Node* node : nodes) {
      node->AddAttr(kOutsideCompilation, cluster_.name);
      cluster_.nodes.push_back(node);
      cluster_.members.insert(node);
    }
  }

  void Examine() { tf_tpu_ext::Examine(shapes_, library_, &cluster_); }

  // The only function in the library that MakeHostFunction makes for the cluster.
  FunctionDef Function() {
    const absl::StatusOr<HostFunction> made = MakeHostFunction(cluster_, library_);
    EXPECT_TRUE(made.ok()) << made.status();
    tensorflow::FunctionDefLibrary functions;
    EXPECT_TRUE(functions.ParseFromString(made->library));
    EXPECT_EQ(functions.function_size(), 1);
    EXPECT_EQ(functions.function(0).signature().name(), made->name);
    return functions.function(0);
  }

  FunctionLibraryDefinition library_;
  Graph graph_;
  tensorflow::GraphShapeInfo shapes_;
  HostCluster cluster_;
};

TEST_F(HostClusterTest, FindsWhatEntersAndLeaves) {
  Node* x = Placeholder("x");
  Node* y = Placeholder("y");
  Node* sum = Operation("sum", "AddV2", {x, y});
  Node* product = Operation("product", "Mul", {sum, x});
  Operation("after", "Neg", {product});
  Include({sum, product});
  Examine();
  EXPECT_EQ(cluster_.reason, "");
  EXPECT_FALSE(cluster_.has_effects);
  ASSERT_EQ(cluster_.inputs.size(), 2);
  EXPECT_EQ(cluster_.inputs[0].node, x);
  EXPECT_EQ(cluster_.inputs[1].node, y);
  ASSERT_EQ(cluster_.outputs.size(), 1);
  EXPECT_EQ(cluster_.outputs[0].node, product);
  EXPECT_EQ(cluster_.output_shapes[0], tensorflow::TensorShape({2}));
  // Examining again gives the same, with nothing twice.
  Examine();
  EXPECT_EQ(cluster_.inputs.size(), 2);
  EXPECT_EQ(cluster_.outputs.size(), 1);
}

TEST_F(HostClusterTest, SmallConstantsAreCopiedAndLargeOnesSent) {
  Node* small = Constant("small", Tensor(tensorflow::DT_FLOAT, {2}));
  Node* large = Constant("large", Tensor(tensorflow::DT_FLOAT, {2000}));
  large->ClearAttr("value");
  Tensor ones(tensorflow::DT_FLOAT, {2000});
  for (int i = 0; i < 2000; ++i) ones.flat<float>()(i) = static_cast<float>(i);
  large->AddAttr("value", ones);
  Node* first = Operation("first", "Neg", {small});
  Node* second = Operation("second", "Neg", {large});
  Include({first, second});
  Examine();
  EXPECT_EQ(cluster_.constants, std::vector<Node*>{small});
  ASSERT_EQ(cluster_.inputs.size(), 1);
  EXPECT_EQ(cluster_.inputs[0].node, large);
}

TEST_F(HostClusterTest, KeepsTheFirstReason) {
  Node* text = Placeholder("text", tensorflow::DT_STRING);
  Node* upper = Add("upper", "StringUpper", {text}, [](NodeDef*) {});
  Add("user", "StringLower", {upper}, [](NodeDef*) {});
  Include({upper});
  Examine();
  EXPECT_EQ(cluster_.reason, "it takes a string from text (Placeholder)");
}

TEST_F(HostClusterTest, OpsThatNeedTheirGraphStay) {
  Node* x = Placeholder("x");
  Node* predicate = Placeholder("predicate", tensorflow::DT_BOOL);
  Node* branch = Operation("branch", "Switch", {x, predicate});
  Include({branch});
  Examine();
  EXPECT_EQ(cluster_.reason, "an op that needs the graph around it: branch (Switch)");
}

TEST_F(HostClusterTest, WhatACalledFunctionDoesCounts) {
  FunctionDef printing;
  printing.mutable_signature()->set_name("printing");
  auto* argument = printing.mutable_signature()->add_input_arg();
  argument->set_name("text");
  argument->set_type(tensorflow::DT_STRING);
  NodeDef* print = printing.add_node_def();
  print->set_name("print");
  print->set_op("PrintV2");
  print->add_input("text");
  ASSERT_TRUE(library_.AddFunctionDef(printing).ok());
  Node* text = Constant("text", Tensor("hello"));
  Node* call = Add("call", "StatefulPartitionedCall", {}, [](NodeDef* node) {
    AddNodeAttr("Tin", std::vector<DataType>{tensorflow::DT_STRING}, node);
    AddNodeAttr("Tout", std::vector<DataType>{}, node);
    tensorflow::NameAttrList function;
    function.set_name("printing");
    AddNodeAttr("f", function, node);
  });
  graph_.AddEdge(text, 0, call, 0);
  Include({call});
  Examine();
  EXPECT_EQ(cluster_.reason, "");
  EXPECT_TRUE(cluster_.has_effects);
}

TEST_F(HostClusterTest, CallsOfUnknownFunctionsStay) {
  Node* call = Add("call", "StatefulPartitionedCall", {}, [](NodeDef* node) {
    AddNodeAttr("Tin", std::vector<DataType>{}, node);
    AddNodeAttr("Tout", std::vector<DataType>{}, node);
    tensorflow::NameAttrList function;
    function.set_name("elsewhere");
    AddNodeAttr("f", function, node);
  });
  Include({call});
  Examine();
  EXPECT_TRUE(absl::StartsWith(cluster_.reason, "a call of an unknown function"))
      << cluster_.reason;
}

TEST_F(HostClusterTest, ConstantOutputsBecomeConstantsOfTheComputation) {
  Tensor value(tensorflow::DT_FLOAT, {2});
  value.flat<float>().setValues({3, -4});
  Node* constant = Constant("constant", value);
  Node* negative = Operation("negative", "Neg", {constant});
  Node* user = Operation("user", "Abs", {negative});
  Include({constant, negative});
  Examine();
  ASSERT_EQ(cluster_.outputs.size(), 1);
  const absl::StatusOr<bool> changed = TakeOutConstantOutputs(cluster_, &graph_);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_TRUE(*changed);
  const Node* input = nullptr;
  ASSERT_TRUE(user->input_node(0, &input).ok());
  ASSERT_TRUE(input->IsConstant());
  EXPECT_EQ(input->attrs().Find(kTpuReplicate)->s(), kComputation);
  Tensor negated;
  ASSERT_TRUE(tensorflow::GetNodeAttr(input->attrs(), "value", &negated).ok());
  EXPECT_EQ(negated.flat<float>()(0), -3);
  EXPECT_EQ(negated.flat<float>()(1), 4);
  Examine();
  EXPECT_TRUE(cluster_.outputs.empty());
}

TEST_F(HostClusterTest, UnknownOutputsAreLeft) {
  Node* x = Placeholder("x");
  Node* negative = Operation("negative", "Neg", {x});
  Operation("user", "Abs", {negative});
  Include({negative});
  Examine();
  const absl::StatusOr<bool> changed = TakeOutConstantOutputs(cluster_, &graph_);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_FALSE(*changed);
}

TEST_F(HostClusterTest, OpsTellTheirLineWhereThereIsNoStackTrace) {
  Node* const sine = Operation("sine", "Sin", {Placeholder("x")});
  Include({sine});
  EXPECT_EQ(SourceOf(cluster_), "");
  sine->AddAttr(kPythonLine, "model.py:3");
  EXPECT_EQ(SourceOf(cluster_), "model.py:3");
}

TEST_F(HostClusterTest, TheFunctionIsTheSameForTheSameNodes) {
  Node* x = Placeholder("x");
  Node* sine = Operation("sine", "Sin", {x});
  Operation("user", "Abs", {sine});
  Include({sine});
  Examine();
  const FunctionDef once = Function();
  EXPECT_EQ(Function().SerializeAsString(), once.SerializeAsString());
  ASSERT_EQ(once.signature().input_arg_size(), 1);
  ASSERT_EQ(once.signature().output_arg_size(), 1);
  EXPECT_FALSE(once.signature().is_stateful());
  ASSERT_EQ(once.node_def_size(), 1);
  EXPECT_EQ(once.node_def(0).op(), "Sin");
  EXPECT_FALSE(once.node_def(0).attr().contains(kTpuReplicate));
  EXPECT_FALSE(once.node_def(0).attr().contains(kOutsideCompilation));
  // Another op gives another function.
  cluster_.nodes[0]->set_name("other");
  EXPECT_NE(Function().signature().name(), once.signature().name());
}

TEST_F(HostClusterTest, TheCallTakesThePlaceOfTheNodes) {
  Node* x = Placeholder("x");
  Node* before = Operation("before", "Neg", {x});
  Node* sine = Operation("sine", "Sin", {x});
  Node* cosine = Operation("cosine", "Cos", {sine});
  Node* user = Operation("user", "Abs", {cosine});
  Node* after = Operation("after", "Neg", {x});
  graph_.AddControlEdge(before, sine);
  graph_.AddControlEdge(cosine, after);
  Include({sine, cosine});
  Examine();
  const int size = graph_.num_op_nodes();
  const absl::StatusOr<HostFunction> function = MakeHostFunction(cluster_, library_);
  ASSERT_TRUE(function.ok()) << function.status();
  const absl::StatusOr<Node*> call = ReplaceByCall(cluster_, *function, &graph_);
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(graph_.num_op_nodes(), size - 1);
  const Node* input = nullptr;
  ASSERT_TRUE(user->input_node(0, &input).ok());
  EXPECT_EQ(input, *call);
  ASSERT_TRUE((*call)->input_node(0, &input).ok());
  EXPECT_EQ(input, x);
  // What came before and after the cluster still does.
  const auto has_control_edge = [](const Node* from, const Node* to) {
    for (const tensorflow::Edge* edge : from->out_edges()) {
      if (edge->IsControlEdge() && edge->dst() == to) return true;
    }
    return false;
  };
  EXPECT_TRUE(has_control_edge(before, *call));
  EXPECT_TRUE(has_control_edge(*call, after));
}

TEST_F(HostClusterTest, UpdatesAreKeptWhole) {
  Node* variable = Placeholder("variable", tensorflow::DT_RESOURCE);
  Node* value = Placeholder("value");
  const auto typed = [](NodeDef* node) { AddNodeAttr("dtype", tensorflow::DT_FLOAT, node); };
  Node* add = Add("add", "AssignAddVariableOp", {variable, value}, typed);
  Node* read = Add("read", "ReadVariableOp", {variable}, typed);
  graph_.AddControlEdge(add, read);
  Include({add, read});
  const absl::Status status = KeepUpdatesWhole(&cluster_, &graph_, &library_);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(cluster_.nodes.size(), 2);
  Node* override = cluster_.nodes[0];
  EXPECT_EQ(override->type_string(), HostUpdateOverride("AssignAddVariableOp"));
  EXPECT_EQ(override->name(), "add");
  EXPECT_TRUE(cluster_.members.contains(override));
  EXPECT_EQ(cluster_.members.size(), 2);
  EXPECT_EQ(cluster_.nodes[1], read);
  const Node* input = nullptr;
  ASSERT_TRUE(override->input_node(0, &input).ok());
  EXPECT_EQ(input, variable);
  ASSERT_EQ(override->out_edges().size(), 1);
  EXPECT_EQ((*override->out_edges().begin())->dst(), read);
}

TEST_F(HostClusterTest, UpdatesInCalledFunctionsAreKeptWholeInCopies) {
  FunctionDef update;
  update.mutable_signature()->set_name("update");
  for (const auto& [name, type] :
       {std::pair("variable", tensorflow::DT_RESOURCE), std::pair("value", tensorflow::DT_FLOAT)}) {
    auto* argument = update.mutable_signature()->add_input_arg();
    argument->set_name(name);
    argument->set_type(type);
  }
  NodeDef* node = update.add_node_def();
  node->set_name("add");
  node->set_op("AssignAddVariableOp");
  node->add_input("variable");
  node->add_input("value");
  AddNodeAttr("dtype", tensorflow::DT_FLOAT, node);
  ASSERT_TRUE(library_.AddFunctionDef(update).ok());
  FunctionDef recursive;
  recursive.mutable_signature()->set_name("recursive");
  NodeDef* itself = recursive.add_node_def();
  itself->set_name("itself");
  itself->set_op("recursive");
  ASSERT_TRUE(library_.AddFunctionDef(recursive).ok());

  const auto call = [this](const std::string& name, const std::string& callee) {
    return Add(name, "StatefulPartitionedCall", {}, [&callee](NodeDef* node) {
      AddNodeAttr("Tin", std::vector<DataType>{}, node);
      AddNodeAttr("Tout", std::vector<DataType>{}, node);
      tensorflow::NameAttrList function;
      function.set_name(callee);
      AddNodeAttr("f", function, node);
    });
  };
  Node* first = call("first", "update");
  Node* second = call("second", "update");
  Node* other = call("other", "recursive");
  Include({first, second, other});
  const absl::Status status = KeepUpdatesWhole(&cluster_, &graph_, &library_);
  ASSERT_TRUE(status.ok()) << status;
  const auto callee = [](const Node* node) { return node->attrs().Find("f")->func().name(); };
  EXPECT_NE(callee(first), "update");
  EXPECT_EQ(callee(first), callee(second));
  EXPECT_EQ(callee(other), "recursive");
  EXPECT_EQ(library_.Find(callee(first))->node_def(0).op(),
            HostUpdateOverride("AssignAddVariableOp"));
  // Others may call the original.
  EXPECT_EQ(library_.Find("update")->node_def(0).op(), "AssignAddVariableOp");
}

}  // namespace
}  // namespace tf_tpu_ext
