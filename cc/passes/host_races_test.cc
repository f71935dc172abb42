#include "cc/passes/host_races.h"

#include <algorithm>
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

  Node* AddValue(tensorflow::DataType type = tensorflow::DT_FLOAT) {
    NodeDef node;
    node.set_name(graph_.NewName("value"));
    node.set_op("Placeholder");
    tensorflow::AddNodeAttr("dtype", type, &node);
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

  void AddSum() {
    NodeDef sum;
    sum.set_name("sum");
    sum.set_op("CrossReplicaSum");
    tensorflow::AddNodeAttr("T", tensorflow::DT_FLOAT, &sum);
    tensorflow::AddNodeAttr(kTpuReplicate, "step", &sum);
    Node* const value = AddValue();
    sum.add_input(value->name());
    sum.add_input(value->name());
    Add(sum, {value, value});
  }

  // A function that takes a variable's handle.
  void AddFunction(const std::string& name, const std::vector<NodeDef>& nodes) {
    FunctionDef function;
    function.mutable_signature()->set_name(name);
    auto* const argument = function.mutable_signature()->add_input_arg();
    argument->set_name("handle");
    argument->set_type(tensorflow::DT_RESOURCE);
    for (const NodeDef& node : nodes) *function.add_node_def() = node;
    EXPECT_TRUE(library_.AddFunctionDef(function).ok());
  }

  // An op that runs functions of the variable; if one attribute has several functions, it is a
  // list.
  void AddCall(const std::string& op, const std::vector<std::string>& attributes,
               const std::vector<std::string>& functions, Node* variable) {
    NodeDef call;
    call.set_name(graph_.NewName(op));
    call.set_op(op);
    std::vector<tensorflow::NameAttrList> named(functions.size());
    for (size_t i = 0; i < functions.size(); ++i) named[i].set_name(functions[i]);
    if (attributes.size() == functions.size()) {
      for (size_t i = 0; i < functions.size(); ++i) {
        tensorflow::AddNodeAttr(attributes[i], named[i], &call);
      }
    } else {
      tensorflow::AddNodeAttr(attributes[0], named, &call);
    }
    const std::vector<tensorflow::DataType> resource = {tensorflow::DT_RESOURCE};
    std::vector<Node*> inputs = {variable};
    if (op == "While") {
      tensorflow::AddNodeAttr("T", resource, &call);
    } else {
      tensorflow::AddNodeAttr("Tin", resource, &call);
      tensorflow::AddNodeAttr("Tout", std::vector<tensorflow::DataType>(), &call);
    }
    if (op == "If") {
      inputs = {AddValue(tensorflow::DT_BOOL), variable};
      tensorflow::AddNodeAttr("Tcond", tensorflow::DT_BOOL, &call);
    } else if (op == "Case") {
      inputs = {AddValue(tensorflow::DT_INT32), variable};
    }
    tensorflow::AddNodeAttr(kTpuReplicate, "step", &call);
    for (Node* input : inputs) call.add_input(input->name());
    Add(call, inputs);
  }

  // Each race as "write other", without those of ops that are both in branches.
  std::vector<std::string> Find(bool check = true) { return Describe(check, false); }

  std::vector<std::string> FindInBranches() { return Describe(/*check=*/true, true); }

  std::vector<std::string> Describe(bool check, bool in_branches) {
    std::vector<std::string> found;
    for (const HostRace& race : FindHostRaces(graph_, library_, check)) {
      EXPECT_EQ(race.computation, "step");
      if (race.in_branches == in_branches) found.push_back(race.write.op + " " + race.other.op);
    }
    std::sort(found.begin(), found.end());
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
  AddSum();
  EXPECT_TRUE(Find().empty());
}

TEST_F(HostRacesTest, OtherVariablesAndReadsAreFine) {
  AddMetadata(2);
  Use("AssignAddVariableOp", AddHandle("v"), "0");
  Use("ReadVariableOp", AddHandle("w"), "0");
  // On the core, not in a cluster.
  Use("AssignVariableOp", AddHandle("u"), "");
  EXPECT_TRUE(Find().empty());
}

TEST_F(HostRacesTest, WritesInOneClusterRaceWhateverMeets) {
  AddMetadata(2);
  Node* const v = AddHandle("v");
  Use("AssignVariableOp", v, "0");
  Use("ReadVariableOp", v, "0");
  Use("ReadVariableOp", v, "1");
  AddSum();
  // The write races with itself and with the read in its cluster.
  EXPECT_EQ(Find().size(), 2u);
}

TEST_F(HostRacesTest, FollowsVariablesIntoCalls) {
  AddFunction("body", {Define("read", "ReadVariableOp", {"handle"}, "0")});
  AddMetadata(2);
  Node* const v = AddHandle("v");
  Use("AssignVariableOp", v, "1");
  AddCall("StatefulPartitionedCall", {"f"}, {"body"}, v);
  EXPECT_EQ(Find().size(), 2u);
  // Through another call, the same op is another access.
  AddCall("StatefulPartitionedCall", {"f"}, {"body"}, v);
  EXPECT_EQ(Find().size(), 3u);
}

TEST_F(HostRacesTest, BranchesAreTakenByOneReplicaAlone) {
  AddFunction("write", {Define("in_branch", "AssignVariableOp", {"handle", "handle"}, "0")});
  AddFunction("other", {Define("in_other", "AssignVariableOp", {"handle", "handle"}, "1")});
  AddMetadata(2);
  Node* const v = AddHandle("v");
  AddCall("If", {"then_branch", "else_branch"}, {"write", "other"}, v);
  EXPECT_TRUE(Find().empty());
  // Each of them with itself, and with the other branch.
  EXPECT_EQ(FindInBranches(),
            (Races{"in_branch in_branch", "in_other in_branch", "in_other in_other"}));
  AddCall("Case", {"branches"}, {"write", "other"}, v);
  EXPECT_TRUE(Find().empty());
  // Another replica may read in the meantime.
  Add(Define("read", "ReadVariableOp", {v->name()}, "2"), {v});
  EXPECT_EQ(Find(), (Races{"in_branch read", "in_branch read", "in_other read", "in_other read"}));
}

TEST_F(HostRacesTest, TellsWhereTheClustersAre) {
  NodeDef call = Define("call", "StatefulPartitionedCall", {"handle"}, "7");
  tensorflow::NameAttrList write;
  write.set_name("write");
  tensorflow::AddNodeAttr("f", write, &call);
  AddFunction("write", {Define("in_function", "AssignVariableOp", {"handle", "handle"}, "")});
  AddFunction("branch", {call});
  AddFunction("nothing", {});
  AddMetadata(2);
  Node* const v = AddHandle("v");
  AddCall("If", {"then_branch", "else_branch"}, {"branch", "nothing"}, v);
  const std::vector<HostRace> races = FindHostRaces(graph_, library_, /*check=*/true);
  ASSERT_EQ(races.size(), 1u);
  EXPECT_EQ(races[0].write.op, "in_function");
  EXPECT_EQ(races[0].write.cluster, "7");
  EXPECT_EQ(races[0].write.function, "branch");
}

TEST_F(HostRacesTest, CollectivesMayKeepBranchesApart) {
  AddFunction("write", {Define("in_branch", "AssignVariableOp", {"handle", "handle"}, "0")});
  AddFunction("nothing", {});
  AddMetadata(2);
  Node* const v = AddHandle("v");
  AddCall("If", {"then_branch", "else_branch"}, {"write", "nothing"}, v);
  Use("ReadVariableOp", v, "1");
  EXPECT_EQ(Find().size(), 1u);
  AddSum();
  EXPECT_TRUE(Find().empty());
}

TEST_F(HostRacesTest, CollectivesOutsideOfALoopKeepNoIterationsApart) {
  AddFunction("condition", {});
  AddFunction("body", {Define("add", "AssignAddVariableOp", {"handle", "handle"}, "0"),
                       Define("read", "ReadVariableOp", {"handle"}, "1")});
  AddMetadata(2);
  Node* const v = AddHandle("v");
  AddCall("While", {"cond", "body"}, {"condition", "body"}, v);
  AddSum();
  EXPECT_EQ(Find(), Races{"add read"});
  // Outside the loop, it may come after the collective.
  Use("ReadVariableOp", v, "2");
  EXPECT_EQ(Find(), Races{"add read"});
}

TEST_F(HostRacesTest, CollectivesInALoopMayKeepIterationsApart) {
  AddFunction("condition", {});
  NodeDef sum = Define("sum", "CrossReplicaSum", {"handle", "handle"}, "");
  AddFunction("body", {Define("add", "AssignAddVariableOp", {"handle", "handle"}, "0"), sum,
                       Define("read", "ReadVariableOp", {"handle"}, "1")});
  AddMetadata(2);
  AddCall("While", {"cond", "body"}, {"condition", "body"}, AddHandle("v"));
  EXPECT_TRUE(Find().empty());
}

TEST_F(HostRacesTest, KnowsBranchesOfTensorFlow1) {
  AddMetadata(2);
  Node* const v = AddHandle("v");
  NodeDef pick;
  pick.set_name("pick");
  pick.set_op("Switch");
  tensorflow::AddNodeAttr("T", tensorflow::DT_RESOURCE, &pick);
  pick.add_input(v->name());
  Node* const predicate = AddValue(tensorflow::DT_BOOL);
  pick.add_input(predicate->name());
  Node* const picked = Add(pick, {v, predicate});
  Use("AssignVariableOp", picked, "0");
  EXPECT_TRUE(Find().empty());
  Use("AssignVariableOp", v, "1");
  // It races with itself, and with the one in the branch.
  EXPECT_EQ(Find().size(), 2u);
}

TEST_F(HostRacesTest, FollowsWhatAllReplicasGet) {
  AddMetadata(2);
  Node* const v = AddHandle("v");
  NodeDef replicated;
  replicated.set_name("replicated");
  replicated.set_op("TPUReplicatedInput");
  tensorflow::AddNodeAttr("T", tensorflow::DT_RESOURCE, &replicated);
  tensorflow::AddNodeAttr("N", 2, &replicated);
  for (int i = 0; i < 2; ++i) replicated.add_input(v->name());
  Use("AssignAddVariableOp", Add(replicated, {v, v}), "0");
  Use("ReadVariableOp", v, "1");
  EXPECT_EQ(Find().size(), 1u);
}

}  // namespace
}  // namespace tf_tpu_ext
