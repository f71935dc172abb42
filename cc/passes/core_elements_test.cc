#include "cc/passes/core_elements.h"

#include <string>
#include <vector>

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

class CoreElementsTest : public ::testing::Test {
 protected:
  CoreElementsTest()
      : library_(tensorflow::OpRegistry::Global(), tensorflow::FunctionDefLibrary()),
        graph_(&library_) {}

  static NodeDef Define(const std::string& name, const std::string& op,
                        const std::vector<std::string>& inputs) {
    NodeDef node;
    node.set_name(name);
    node.set_op(op);
    for (const std::string& input : inputs) node.add_input(input);
    tensorflow::AddNodeAttr(op == "Placeholder" ? "dtype" : "T", tensorflow::DT_FLOAT, &node);
    if (op == "TPUReplicatedInput") {
      tensorflow::AddNodeAttr("N", static_cast<int>(inputs.size()), &node);
    }
    return node;
  }

  static NodeDef Move(const std::string& name, const std::string& input) {
    NodeDef node = Define(name, "Identity", {input});
    node.set_device("/device:TPU:0");
    tensorflow::AddNodeAttr(kForCore, "/device:TPU:0", &node);
    return node;
  }

  Node* Add(const NodeDef& definition, const std::vector<Node*>& inputs) {
    absl::Status status;
    Node* const node = graph_.AddNode(definition, &status);
    EXPECT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < inputs.size(); ++i) {
      graph_.AddEdge(inputs[i], 0, node, static_cast<int>(i));
    }
    return node;
  }

  void TakeFromHost() {
    const absl::Status status = TakeElementsFromHost(&graph_, &library_);
    EXPECT_TRUE(status.ok()) << status;
  }

  static std::string InputOf(const Node& node, int index) {
    const Node* input = nullptr;
    EXPECT_TRUE(node.input_node(index, &input).ok());
    return input->name();
  }

  bool Has(const std::string& name) const {
    for (const Node* node : graph_.op_nodes()) {
      if (node->name() == name) return true;
    }
    return false;
  }

  FunctionLibraryDefinition library_;
  Graph graph_;
};

TEST_F(CoreElementsTest, AComputationTakesWhatWasMoved) {
  Node* const a = Add(Define("a", "Placeholder", {}), {});
  Node* const b = Add(Define("b", "Placeholder", {}), {});
  Node* const a_there = Add(Move("a_there", "a"), {a});
  Node* const b_there = Add(Move("b_there", "b"), {b});
  Node* const other = Add(Define("other", "Identity", {"b_there"}), {b_there});
  Node* const input =
      Add(Define("input", "TPUReplicatedInput", {"a_there", "b_there"}), {a_there, b_there});
  TakeFromHost();
  EXPECT_EQ(InputOf(*input, 0), "a");
  EXPECT_EQ(InputOf(*input, 1), "b");
  EXPECT_FALSE(Has("a_there"));
  EXPECT_EQ(InputOf(*other, 0), "b_there");
}

TEST_F(CoreElementsTest, OtherIdentitiesStay) {
  Node* const a = Add(Define("a", "Placeholder", {}), {});
  Node* const same = Add(Define("same", "Identity", {"a"}), {a});
  Node* const input = Add(Define("input", "TPUReplicatedInput", {"same", "a"}), {same, a});
  TakeFromHost();
  EXPECT_EQ(InputOf(*input, 0), "same");
}

TEST_F(CoreElementsTest, DamagedFunctionsDoNoHarm) {
  FunctionDef function;
  function.mutable_signature()->set_name("damaged");
  NodeDef move = Move("move", "");
  *function.add_node_def() = move;
  move.clear_input();
  move.set_name("without input");
  *function.add_node_def() = move;
  *function.add_node_def() =
      Define("input", "TPUReplicatedInput", {"", "^", "without input:output:0", "none:output:0"});
  ASSERT_TRUE(library_.AddFunctionDef(function).ok());
  TakeFromHost();
  EXPECT_EQ(library_.Find("damaged")->node_def_size(), 2);
}

TEST_F(CoreElementsTest, AComputationInAFunctionDoesSoToo) {
  FunctionDef function;
  function.mutable_signature()->set_name("body");
  *function.add_node_def() = Define("a", "Placeholder", {});
  *function.add_node_def() = Move("a_there", "a:output:0");
  *function.add_node_def() = Move("b_there", "a:output:0");
  *function.add_node_def() = Move("c_there", "a:output:0");
  *function.add_node_def() = Move("d_there", "a:output:0");
  *function.add_node_def() =
      Define("input", "TPUReplicatedInput", {"a_there:output:0", "b_there:output:0"});
  *function.add_node_def() = Define("after", "Identity", {"a:output:0", "^c_there"});
  (*function.mutable_ret())["result"] = "b_there:output:0";
  ASSERT_TRUE(library_.AddFunctionDef(function).ok());
  TakeFromHost();
  std::vector<std::string> names;
  for (const NodeDef& node : library_.Find("body")->node_def()) {
    names.push_back(node.name());
    if (node.name() != "input") continue;
    EXPECT_EQ(node.input(0), "a:output:0");
    EXPECT_EQ(node.input(1), "a:output:0");
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b_there", "c_there", "input", "after"}));
}

}  // namespace
}  // namespace tf_tpu_ext
