#include "cc/passes/part_graph.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/ops/op_names.h"
#include "cc/passes/computation_parts.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/graph/algorithm.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDefLibrary;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::GraphDef;
using tensorflow::Node;
using tensorflow::NodeDef;

class PartsTest : public ::testing::Test {
 protected:
  PartsTest()
      : library_(tensorflow::OpRegistry::Global(), FunctionDefLibrary()),
        graph_(std::make_unique<Graph>(&library_)) {}

  Node* Add(const std::string& name, const std::string& op, const std::vector<Node*>& inputs,
            const std::string& computation = "") {
    NodeDef definition;
    definition.set_name(name);
    definition.set_op(op);
    if (op != "NoOp") {
      tensorflow::AddNodeAttr(op == "Placeholder" ? "dtype" : "T", tensorflow::DT_FLOAT,
                              &definition);
    }
    if (op == "TPUReplicatedInput") tensorflow::AddNodeAttr("N", 1, &definition);
    if (op == "TPUReplicatedOutput") tensorflow::AddNodeAttr("num_replicas", 1, &definition);
    if (!computation.empty()) tensorflow::AddNodeAttr(kTpuReplicate, computation, &definition);
    absl::StatusOr<Node*> node = graph_->AddNode(std::move(definition));
    EXPECT_TRUE(node.ok()) << node.status();
    for (size_t i = 0; i < inputs.size(); ++i) {
      graph_->AddEdge(inputs[i], 0, *node, static_cast<int>(i));
    }
    return *node;
  }

  // A computation with one op, whose input and output are the host's.
  Node* Computation(const std::string& name, Node* input) {
    Node* const in = Add(name + "/in", "TPUReplicatedInput", {input});
    Node* const body = Add(name + "/body", "Neg", {in}, name);
    return Add(name + "/out", "TPUReplicatedOutput", {body});
  }

  std::vector<ComputationPart> Divide() {
    tensorflow::FixupSourceAndSinkEdges(graph_.get());
    return DivideIntoParts(*graph_, library_);
  }

  static std::vector<std::string> Names(const std::vector<Node*>& nodes) {
    std::vector<std::string> names;
    for (const Node* node : nodes) names.push_back(node->name());
    return names;
  }

  Node* Find(const std::string& name) const {
    for (Node* node : graph_->op_nodes()) {
      if (node->name() == name) return node;
    }
    return nullptr;
  }

  static std::string Text(const Graph& graph) {
    GraphDef definition;
    graph.ToGraphDef(&definition);
    return definition.ShortDebugString();
  }

  FunctionLibraryDefinition library_;
  std::unique_ptr<Graph> graph_;
};

using Strings = std::vector<std::string>;

TEST_F(PartsTest, EachComputationWithWhatItDependsOn) {
  Node* const x = Add("x", "Placeholder", {});
  Node* const y = Add("y", "Placeholder", {});
  Add("result", "Identity", {Computation("train", Add("double", "Neg", {x}))});
  Computation("evaluate", y);
  Add("host", "Neg", {y});
  const std::vector<ComputationPart> parts = Divide();
  ASSERT_EQ(parts.size(), 2);
  EXPECT_EQ(Names(parts[0].computations), (Strings{"train/in", "train/body", "train/out"}));
  EXPECT_EQ(Names(parts[0].ancestors), (Strings{"x", "double"}));
  EXPECT_EQ(Names(parts[1].computations),
            (Strings{"evaluate/in", "evaluate/body", "evaluate/out"}));
  EXPECT_EQ(Names(parts[1].ancestors), Strings{"y"});
}

TEST_F(PartsTest, ThoseThatDependOnEachOtherAreOne) {
  Node* const x = Add("x", "Placeholder", {});
  Node* const between = Add("between", "Identity", {Computation("first", x)});
  Computation("second", between);
  const std::vector<ComputationPart> parts = Divide();
  ASSERT_EQ(parts.size(), 1);
  EXPECT_EQ(parts[0].computations.size(), 6);
  EXPECT_EQ(Names(parts[0].ancestors), (Strings{"x", "between"}));
}

TEST_F(PartsTest, LoopsOfTheHostAreNotDivided) {
  Node* const x = Add("x", "Placeholder", {});
  NodeDef enter;
  enter.set_name("enter");
  enter.set_op("Enter");
  tensorflow::AddNodeAttr("T", tensorflow::DT_FLOAT, &enter);
  tensorflow::AddNodeAttr("frame_name", "loop", &enter);
  Node* const entered = *graph_->AddNode(std::move(enter));
  graph_->AddEdge(x, 0, entered, 0);
  Computation("step", entered);
  EXPECT_TRUE(Divide().empty());
}

TEST_F(PartsTest, AGraphThatGrowsHasTheSamePart) {
  Node* const x = Add("x", "Placeholder", {});
  Node* const gate = Add("step/gate/_7", "NoOp", {});
  Computation("step", x);
  graph_->AddControlEdge(gate, Find("step/body"));
  Add("result", "Identity", {Find("step/out")});
  const std::vector<ComputationPart> before = Divide();
  const std::string text = Text(*MakePartGraph(before[0], *graph_)->graph);
  // Names that passes number are counted over the whole graph.
  gate->set_name("step/gate/_9");
  Add("more", "Neg", {x});
  Add("other_result", "Identity", {Find("step/out")});
  const std::vector<ComputationPart> after = Divide();
  ASSERT_EQ(after.size(), 1);
  absl::StatusOr<PartGraph> part = MakePartGraph(after[0], *graph_);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(Text(*part->graph), text);
  ASSERT_EQ(part->leaving.size(), 1);
  EXPECT_EQ(part->leaving[0].takers.size(), 2);
  EXPECT_EQ(part->ancestors.at("step/gate/_part0"), gate);
}

// The bridge may make one op for the computation, and one for a constant on the host.
TEST_F(PartsTest, WhatTheBridgeMadeTakesTheirPlace) {
  Node* const x = Add("x", "Placeholder", {});
  Node* const folded = Add("folded", "Neg", {x});
  Node* const out = Computation("step", folded);
  Node* const result = Add("result", "Identity", {out});
  Node* const last = Add("last", "NoOp", {});
  graph_->AddControlEdge(Find("step/body"), last);
  const std::vector<ComputationPart> parts = Divide();
  absl::StatusOr<PartGraph> part = MakePartGraph(parts[0], *graph_);
  ASSERT_TRUE(part.ok()) << part.status();
  const std::unique_ptr<Graph> whole = std::move(graph_);
  graph_ = std::move(part->graph);
  for (Node* node : std::vector<Node*>{Find("step/in"), Find("step/out"), Find("folded")}) {
    graph_->RemoveNode(node);
  }
  Node* const known = Add("folded", "Placeholder", {});
  Node* const body = Find("step/body");
  body->ClearAttr(kTpuReplicate);
  graph_->AddEdge(known, 0, body, 0);
  Node* const same_name = Add("result", "Identity", {body});
  Node* const sink = Find(part->leaving[1].sink);
  ASSERT_EQ(sink->type_string(), "Identity");
  graph_->AddEdge(same_name, 0, sink, 0);
  const std::optional<GraphDef> made = MadeByBridge(*part, *graph_);
  ASSERT_TRUE(made.has_value());

  ASSERT_TRUE(ReplaceComputations(parts[0], *part, *made, whole.get()).ok());
  const Node* source = nullptr;
  ASSERT_TRUE(result->input_node(0, &source).ok());
  EXPECT_EQ(source->name().rfind("result/_", 0), 0) << source->name();
  ASSERT_TRUE(source->input_node(0, &source).ok());
  EXPECT_EQ(source->name(), "step/body");
  EXPECT_TRUE(std::any_of(last->in_edges().begin(), last->in_edges().end(),
                          [&](const tensorflow::Edge* edge) { return edge->src() == source; }));
  ASSERT_TRUE(source->input_node(0, &source).ok());
  EXPECT_EQ(source->type_string(), "Placeholder");
  EXPECT_NE(source, x);
  for (const Node* node : whole->op_nodes()) {
    EXPECT_EQ(node->attrs().Find(kTpuReplicate), nullptr) << node->name();
  }
}

TEST_F(PartsTest, WhatStaysBetweenComputationsGetsItsInput) {
  Node* const x = Add("x", "Placeholder", {});
  Node* const between = Add("between", "Identity", {Computation("first", x)});
  Add("result", "Identity", {Computation("second", between)});
  const std::vector<ComputationPart> parts = Divide();
  absl::StatusOr<PartGraph> part = MakePartGraph(parts[0], *graph_);
  ASSERT_TRUE(part.ok()) << part.status();
  const std::optional<GraphDef> made = MadeByBridge(*part, *part->graph);
  ASSERT_TRUE(made.has_value());
  ASSERT_TRUE(ReplaceComputations(parts[0], *part, *made, graph_.get()).ok());
  const Node* source = nullptr;
  ASSERT_TRUE(between->input_node(0, &source).ok());
  EXPECT_EQ(source->name(), "first/out");
  ASSERT_TRUE(Find("second/in")->input_node(0, &source).ok());
  EXPECT_EQ(source, between);
}

TEST_F(PartsTest, WhatTheBridgeLosesIsAnError) {
  Node* const x = Add("x", "Placeholder", {});
  Add("result", "Identity", {Computation("step", x)});
  const std::vector<ComputationPart> parts = Divide();
  absl::StatusOr<PartGraph> part = MakePartGraph(parts[0], *graph_);
  ASSERT_TRUE(part.ok()) << part.status();
  const absl::Status status = ReplaceComputations(parts[0], *part, GraphDef(), graph_.get());
  EXPECT_EQ(status.message(), "The bridge has lost what result takes.");
}

}  // namespace
}  // namespace tf_tpu_ext
