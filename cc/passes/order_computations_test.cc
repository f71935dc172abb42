#include "cc/passes/order_computations.h"

#include <algorithm>
#include <string>
#include <vector>

#include "cc/ops/op_names.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeDef;
using Numbers = std::vector<int>;

TEST(GatesOfComputationsTest, ComputationFollowsTheLastOpsOfTheOneBefore) {
  const std::vector<OrderedNode> nodes = {
      {"a", {}, {}},   // 0
      {"b", {}, {}},   // 1
      {"a", {0}, {}},  // 2
      {"a", {0}, {}},  // 3
      {"b", {1}, {2}},
  };
  const std::vector<Gate> gates = GatesOfComputations(nodes);
  ASSERT_EQ(gates.size(), 1);
  EXPECT_EQ(gates[0].computation, "b");
  EXPECT_EQ(gates[0].after, (Numbers{2, 3}));
  EXPECT_EQ(gates[0].before, (Numbers{1}));
}

TEST(GatesOfComputationsTest, FollowsThroughOpsOfTheHost) {
  const std::vector<OrderedNode> nodes = {
      {"a", {}, {}}, {"", {0}, {}}, {"", {1}, {}}, {"b", {}, {}}, {"b", {2, 3}, {}}};
  const std::vector<Gate> gates = GatesOfComputations(nodes);
  ASSERT_EQ(gates.size(), 1);
  EXPECT_EQ(gates[0].after, (Numbers{0}));
  EXPECT_EQ(gates[0].before, (Numbers{3}));
}

TEST(GatesOfComputationsTest, FirstOpsGetAllControlInputs) {
  const std::vector<OrderedNode> nodes = {
      {"", {}, {}}, {"a", {}, {}}, {"a", {}, {}}, {"a", {1, 2}, {0}}};
  const std::vector<Gate> gates = GatesOfComputations(nodes);
  ASSERT_EQ(gates.size(), 1);
  EXPECT_EQ(gates[0].after, (Numbers{0}));
  EXPECT_EQ(gates[0].before, (Numbers{1, 2}));
}

TEST(GatesOfComputationsTest, IndependentComputationsNeedNone) {
  EXPECT_TRUE(GatesOfComputations({{"a", {}, {}}, {"b", {}, {}}, {"", {0, 1}, {}}}).empty());
}

TEST(GatesOfComputationsTest, ComputationsInACycleGetNone) {
  // b needs a host op that needs b; c follows them.
  const std::vector<OrderedNode> nodes = {
      {"a", {}, {}}, {"b", {}, {0}}, {"", {1}, {}}, {"b", {2}, {}}, {"c", {3}, {}}};
  EXPECT_TRUE(GatesOfComputations(nodes).empty());
}

class OrderComputationsTest : public ::testing::Test {
 protected:
  OrderComputationsTest()
      : library_(tensorflow::OpRegistry::Global(), tensorflow::FunctionDefLibrary()),
        graph_(&library_) {}

  static NodeDef Definition(const std::string& name, const std::string& computation) {
    NodeDef definition;
    definition.set_name(name);
    definition.set_op("NoOp");
    if (!computation.empty()) tensorflow::AddNodeAttr(kTpuReplicate, computation, &definition);
    return definition;
  }
  Node* Add(const std::string& name, const std::string& computation,
            const std::vector<Node*>& after) {
    absl::StatusOr<Node*> node = graph_.AddNode(Definition(name, computation));
    EXPECT_TRUE(node.ok()) << node.status();
    for (Node* earlier : after) graph_.AddControlEdge(earlier, *node);
    return *node;
  }
  static bool Follows(const Node* node, const Node* earlier) {
    return std::any_of(node->in_nodes().begin(), node->in_nodes().end(), [&](const Node* input) {
      return input == earlier || Follows(input, earlier);
    });
  }

  FunctionLibraryDefinition library_;
  Graph graph_;
};

TEST_F(OrderComputationsTest, EveryOpOfTheLaterFollowsEveryOpOfTheEarlier) {
  std::vector<Node*> first, second;
  for (int i = 0; i < 3; ++i) {
    first.push_back(Add("first" + std::to_string(i), "a", {}));
    second.push_back(Add("second" + std::to_string(i), "b", {}));
  }
  graph_.AddControlEdge(first[0], second[0]);
  ASSERT_TRUE(OrderComputations(/*of_session=*/false, &graph_, &library_).ok());
  for (const Node* node : second) {
    for (const Node* earlier : first) EXPECT_TRUE(Follows(node, earlier));
  }
}

TEST_F(OrderComputationsTest, SingleComputationNeedsAGateInSessionsOnly) {
  Node* host = Add("host", "", {});
  Node* free = Add("free", "a", {});
  Add("bound", "a", {host});
  ASSERT_TRUE(OrderComputations(/*of_session=*/false, &graph_, &library_).ok());
  EXPECT_FALSE(Follows(free, host));
  ASSERT_TRUE(OrderComputations(/*of_session=*/true, &graph_, &library_).ok());
  EXPECT_TRUE(Follows(free, host));
}

TEST_F(OrderComputationsTest, FunctionsOfTheLibraryGetGates) {
  FunctionDef function;
  function.mutable_signature()->set_name("body");
  *function.add_node_def() = Definition("first", "a");
  *function.add_node_def() = Definition("free", "b");
  *function.add_node_def() = Definition("bound", "b");
  function.mutable_node_def(2)->add_input("^first");
  // The gate's name is already taken.
  *function.add_node_def() = Definition("b/gate", "");
  ASSERT_TRUE(library_.AddFunctionDef(function).ok());
  ASSERT_TRUE(OrderComputations(/*of_session=*/false, &graph_, &library_).ok());
  const FunctionDef& ordered = *library_.Find("body");
  ASSERT_EQ(ordered.node_def_size(), 5);
  ASSERT_EQ(ordered.node_def(1).input_size(), 1);
  EXPECT_EQ(ordered.node_def(1).input(0), "^" + ordered.node_def(4).name());
  EXPECT_NE(ordered.node_def(4).name(), "b/gate");
  ASSERT_EQ(ordered.node_def(4).input_size(), 1);
  EXPECT_EQ(ordered.node_def(4).input(0), "^first");
}

}  // namespace
}  // namespace tf_tpu_ext
