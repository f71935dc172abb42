#include "cc/passes/host_races.h"

#include <string>
#include <vector>

#include "cc/ops/op_names.h"
#include "cc/program/traced_options.h"
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

class HostRacesTest : public ::testing::Test {
 protected:
  HostRacesTest()
      : library_(tensorflow::OpRegistry::Global(), tensorflow::FunctionDefLibrary()),
        graph_(&library_) {}

  void AddMetadata(int replicas) {
    NodeDef node;
    node.set_name("metadata");
    node.set_op("TPUReplicateMetadata");
    tensorflow::AddNodeAttr("num_replicas", replicas, &node);
    tensorflow::AddNodeAttr(kTpuReplicate, "step", &node);
    Add(node, {});
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

  static NodeDef Define(const std::string& name, const std::string& op,
                        const std::vector<std::string>& inputs, const std::string& cluster) {
    NodeDef node;
    node.set_name(name);
    node.set_op(op);
    for (const std::string& input : inputs) node.add_input(input);
    if (op != "Const") tensorflow::AddNodeAttr("dtype", tensorflow::DT_FLOAT, &node);
    if (!cluster.empty()) tensorflow::AddNodeAttr(kOutsideCompilation, cluster, &node);
    tensorflow::AddNodeAttr(kTpuReplicate, "step", &node);
    return node;
  }

  Node* AddHandle(const std::string& name) {
    NodeDef node;
    node.set_name(name);
    node.set_op("VarHandleOp");
    tensorflow::AddNodeAttr("dtype", tensorflow::DT_FLOAT, &node);
    tensorflow::AddNodeAttr("shape", tensorflow::TensorShape({}), &node);
    tensorflow::AddNodeAttr("shared_name", name, &node);
    return Add(node, {});
  }

  Node* AddValue() {
    NodeDef node;
    node.set_name(graph_.NewName("value"));
    node.set_op("Placeholder");
    tensorflow::AddNodeAttr("dtype", tensorflow::DT_FLOAT, &node);
    return Add(node, {});
  }

  void Use(const std::string& op, Node* handle, const std::string& cluster) {
    std::vector<std::string> inputs = {handle->name()};
    std::vector<Node*> nodes = {handle};
    if (op != "ReadVariableOp") {
      nodes.push_back(AddValue());
      inputs.push_back(nodes.back()->name());
    }
    Add(Define(graph_.NewName(op), op, inputs, cluster), nodes);
  }

  // Each as "write other".
  std::vector<std::string> Find(bool check = true) {
    std::vector<std::string> found;
    for (const HostRace& race : FindHostRaces(graph_, library_, check)) {
      EXPECT_EQ(race.computation, "step");
      found.push_back(race.write.op + " " + race.other.op);
    }
    return found;
  }

  FunctionLibraryDefinition library_;
  Graph graph_;
};

using Races = std::vector<std::string>;

TEST_F(HostRacesTest, WritesOfReplicas) {
  AddMetadata(2);
  Use("AssignVariableOp", AddHandle("v"), "0");
  const Races races = Find();
  ASSERT_EQ(races.size(), 1u);
  EXPECT_TRUE(Find(/*check=*/false).empty());
}

TEST_F(HostRacesTest, OneReplicaHasNone) {
  AddMetadata(1);
  Use("AssignVariableOp", AddHandle("v"), "0");
  EXPECT_TRUE(Find().empty());
}

TEST_F(HostRacesTest, AddsDontRaceWithEachOtherButWithReads) {
  AddMetadata(2);
  Node* const v = AddHandle("v");
  Use("AssignAddVariableOp", v, "0");
  Use("AssignSubVariableOp", v, "1");
  EXPECT_TRUE(Find().empty());
  Use("ReadVariableOp", v, "0");
  EXPECT_EQ(Find().size(), 2u);
}

TEST_F(HostRacesTest, CollectivesMayKeepClustersApart) {
  AddMetadata(2);
  Node* const v = AddHandle("v");
  Use("AssignAddVariableOp", v, "0");
  Use("ReadVariableOp", v, "1");
  EXPECT_EQ(Find().size(), 1u);
  NodeDef sum = Define("sum", "CrossReplicaSum", {}, "");
  sum.clear_attr();
  tensorflow::AddNodeAttr("T", tensorflow::DT_FLOAT, &sum);
  tensorflow::AddNodeAttr(kTpuReplicate, "step", &sum);
  Node* const value = AddValue();
  sum.add_input(value->name());
  sum.add_input(value->name());
  Add(sum, {value, value});
  EXPECT_TRUE(Find().empty());
}

TEST_F(HostRacesTest, OtherVariablesAndReadsAreFine) {
  AddMetadata(2);
  Use("AssignAddVariableOp", AddHandle("v"), "0");
  Use("ReadVariableOp", AddHandle("w"), "0");
  // On the core.
  Use("AssignVariableOp", AddHandle("u"), "");
  EXPECT_TRUE(Find().empty());
}

TEST_F(HostRacesTest, FollowsVariablesIntoFunctions) {
  FunctionDef body;
  body.mutable_signature()->set_name("body");
  auto* const argument = body.mutable_signature()->add_input_arg();
  argument->set_name("handle");
  argument->set_type(tensorflow::DT_RESOURCE);
  *body.add_node_def() = Define("read", "ReadVariableOp", {"handle"}, "0");
  ASSERT_TRUE(library_.AddFunctionDef(body).ok());
  AddMetadata(2);
  Node* const v = AddHandle("v");
  Use("AssignVariableOp", v, "1");
  for (const char* op : {"StatefulPartitionedCall", "If"}) {
    NodeDef call;
    call.set_name(op);
    call.set_op(op);
    const std::vector<tensorflow::DataType> resource = {tensorflow::DT_RESOURCE};
    tensorflow::NameAttrList function;
    function.set_name("body");
    tensorflow::AddNodeAttr("Tin", resource, &call);
    tensorflow::AddNodeAttr("Tout", std::vector<tensorflow::DataType>(), &call);
    tensorflow::AddNodeAttr(kTpuReplicate, "step", &call);
    std::vector<Node*> inputs = {v};
    if (call.op() == "If") {
      inputs = {AddValue(), v};
      tensorflow::AddNodeAttr("Tcond", tensorflow::DT_FLOAT, &call);
      tensorflow::AddNodeAttr("then_branch", function, &call);
      tensorflow::AddNodeAttr("else_branch", function, &call);
    } else {
      tensorflow::AddNodeAttr("f", function, &call);
    }
    for (Node* input : inputs) call.add_input(input->name());
    Add(call, inputs);
  }
  // The write with itself, and with the read of the call; not with that of the branch.
  EXPECT_EQ(Find().size(), 2u);
}

}  // namespace
}  // namespace tf_tpu_ext
