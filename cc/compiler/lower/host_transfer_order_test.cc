#include "cc/compiler/lower/host_transfer_order.h"

#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::NodeDef;

constexpr char kArgument[] = "_xla_token_arg_node";

// A function made of nodes. Nothing here checks that the ops exist.
class Body {
 public:
  explicit Body(const std::string& name) { function_.mutable_signature()->set_name(name); }

  Body& Add(const std::string& name, const std::string& op, std::vector<std::string> inputs = {}) {
    NodeDef* node = function_.add_node_def();
    node->set_name(name);
    node->set_op(op);
    for (std::string& input : inputs) node->add_input(std::move(input));
    return *this;
  }
  // Makes the last node call a function.
  Body& Calls(const std::string& attribute, const std::string& function) {
    auto& attributes = *last()->mutable_attr();
    attributes[attribute].mutable_func()->set_name(function);
    return *this;
  }
  NodeDef* last() { return function_.mutable_node_def(function_.node_def_size() - 1); }
  const FunctionDef& function() const { return function_; }

 private:
  FunctionDef function_;
};

class HostTransferOrderTest : public ::testing::Test {
 protected:
  HostTransferOrderTest()
      : library_(tensorflow::OpRegistry::Global(), tensorflow::FunctionDefLibrary()) {}

  void Define(const Body& body) { ASSERT_TRUE(library_.AddFunctionDef(body.function()).ok()); }

  // Orders the transfers that "main" reaches.
  bool Order() {
    bool has_transfers = false;
    const absl::Status status = OrderHostTransfers("main", &library_, &has_transfers);
    EXPECT_TRUE(status.ok()) << status;
    return has_transfers;
  }

  NodeDef Node(const std::string& function, const std::string& name) const {
    for (const NodeDef& node : library_.Find(function)->node_def()) {
      if (node.name() == name) return node;
    }
    ADD_FAILURE() << function << " has no node " << name;
    return NodeDef();
  }

  // The node whose token this node takes. Empty if it is not ordered.
  std::string TokenOf(const std::string& function, const std::string& name) const {
    const NodeDef node = Node(function, name);
    const auto inputs = node.attr().find("_xla_token_input_nodes");
    const auto owner = node.attr().find("_xla_original_oc_node_name");
    EXPECT_EQ(inputs == node.attr().end(), owner == node.attr().end());
    if (inputs == node.attr().end()) return "";
    EXPECT_EQ(owner->second.s(), name);
    EXPECT_EQ(inputs->second.list().s_size(), 1);
    const std::string token = inputs->second.list().s(0);
    const int last = node.input_size() - 1;
    if (token != kArgument) {
      EXPECT_EQ(last >= 0 ? node.input(last) : "", "^" + token);
    }
    return token;
  }

  std::string Serialized(const std::string& function) const {
    return library_.Find(function)->DebugString();
  }

  FunctionLibraryDefinition library_;
};

TEST_F(HostTransferOrderTest, ProgramWithoutTransfersStaysAsItIs) {
  Define(Body("main").Add("a", "Const").Add("b", "Neg", {"a:output:0"}));
  const std::string before = Serialized("main");
  EXPECT_FALSE(Order());
  EXPECT_EQ(Serialized("main"), before);
}

TEST_F(HostTransferOrderTest, UnknownEntryHasNoTransfers) { EXPECT_FALSE(Order()); }

TEST_F(HostTransferOrderTest, EveryOpThatTalksToTheHostIsChained) {
  const std::vector<std::string> ops = {
      "XlaSendToHost",  "XlaRecvFromHost",     "InfeedDequeue",  "InfeedDequeueTuple",
      "OutfeedEnqueue", "OutfeedEnqueueTuple", "XlaHostCompute", "_XlaHostComputeMlir"};
  Body body("main");
  for (const std::string& op : ops) body.Add("n_" + op, op).Add("between_" + op, "Neg");
  Define(body);
  EXPECT_TRUE(Order());
  std::string previous = kArgument;
  for (const std::string& op : ops) {
    EXPECT_EQ(TokenOf("main", "n_" + op), previous);
    EXPECT_EQ(TokenOf("main", "between_" + op), "");
    previous = "n_" + op;
  }
}

TEST_F(HostTransferOrderTest, DataOrderComesBeforeTheOrderInTheFunction) {
  // The receiver comes first in the list, but depends on the sender's control output.
  Define(Body("main")
             .Add("receive", "XlaRecvFromHost", {"^middle"})
             .Add("middle", "Neg", {"send:output:0", "argument"})
             .Add("other", "OutfeedEnqueue")
             .Add("send", "_XlaHostComputeMlir", {"argument"}));
  EXPECT_TRUE(Order());
  EXPECT_EQ(TokenOf("main", "other"), kArgument);
  EXPECT_EQ(TokenOf("main", "send"), "other");
  EXPECT_EQ(TokenOf("main", "receive"), "send");
}

TEST_F(HostTransferOrderTest, HostComputeBecomesOurOpWithTheAttributesItNeeds) {
  Body body("main");
  body.Add("call", "_XlaHostComputeMlir", {"x"});
  auto& attributes = *body.last()->mutable_attr();
  attributes["Tinputs"].mutable_list()->add_type(tensorflow::DT_FLOAT);
  attributes["Toutputs"].mutable_list()->add_type(tensorflow::DT_INT32);
  attributes["send_key"].set_s("up");
  attributes["recv_key"].set_s("down");
  attributes["host_mlir_module"].set_s("dropped");
  attributes["_output_shapes"].mutable_list()->add_shape()->add_dim()->set_size(3);
  Define(body);
  EXPECT_TRUE(Order());
  const NodeDef node = Node("main", "call");
  EXPECT_EQ(node.op(), "TpuExt>HostCompute");
  EXPECT_EQ(node.attr().at("Tinputs").list().type(0), tensorflow::DT_FLOAT);
  EXPECT_EQ(node.attr().at("Toutputs").list().type(0), tensorflow::DT_INT32);
  EXPECT_EQ(node.attr().at("send_key").s(), "up");
  EXPECT_EQ(node.attr().at("recv_key").s(), "down");
  EXPECT_EQ(node.attr().at("shapes").list().shape(0).dim(0).size(), 3);
  EXPECT_EQ(node.attr().count("host_mlir_module"), 0);
  EXPECT_EQ(node.attr().count("_output_shapes"), 0);
}

TEST_F(HostTransferOrderTest, ItsOwnShapesComeBeforeInferredOnes) {
  Body body("main");
  body.Add("call", "XlaHostCompute");
  auto& attributes = *body.last()->mutable_attr();
  attributes["shapes"].mutable_list()->add_shape()->add_dim()->set_size(5);
  attributes["_output_shapes"].mutable_list()->add_shape();
  Define(body);
  EXPECT_TRUE(Order());
  EXPECT_EQ(Node("main", "call").attr().at("shapes").list().shape(0).dim(0).size(), 5);
}

TEST_F(HostTransferOrderTest, HostComputeWithoutResultsHasAnEmptyListOfShapes) {
  Define(Body("main").Add("call", "_XlaHostComputeMlir"));
  EXPECT_TRUE(Order());
  const auto shapes = Node("main", "call").attr().at("shapes");
  EXPECT_TRUE(shapes.has_list());
  EXPECT_EQ(shapes.list().shape_size(), 0);
}

TEST_F(HostTransferOrderTest, NestedLoopsAreChainedOnEveryLevel) {
  Define(Body("inner_body").Add("first", "XlaSendToHost").Add("second", "XlaRecvFromHost"));
  Define(Body("inner_condition").Add("less", "Less"));
  Define(Body("outer_body")
             .Add("before", "OutfeedEnqueue")
             .Add("loop", "While", {"x"})
             .Calls("body", "inner_body")
             .Calls("cond", "inner_condition"));
  Define(Body("outer_condition").Add("less", "Less"));
  Define(Body("main")
             .Add("loop", "StatelessWhile", {"x"})
             .Calls("body", "outer_body")
             .Calls("cond", "outer_condition")
             .Add("after", "OutfeedEnqueue", {"loop:output:0"}));
  EXPECT_TRUE(Order());
  EXPECT_EQ(TokenOf("main", "loop"), kArgument);
  EXPECT_EQ(TokenOf("main", "after"), "loop");
  EXPECT_EQ(TokenOf("outer_body", "before"), kArgument);
  EXPECT_EQ(TokenOf("outer_body", "loop"), "before");
  EXPECT_EQ(TokenOf("inner_body", "first"), kArgument);
  EXPECT_EQ(TokenOf("inner_body", "second"), "first");
  EXPECT_EQ(TokenOf("inner_condition", "less"), "");
}

TEST_F(HostTransferOrderTest, TransferInALoopConditionOrdersTheLoop) {
  Define(Body("condition").Add("ask", "_XlaHostComputeMlir"));
  Define(Body("body").Add("add", "AddV2"));
  Define(Body("main").Add("loop", "While").Calls("cond", "condition").Calls("body", "body"));
  EXPECT_TRUE(Order());
  EXPECT_EQ(TokenOf("main", "loop"), kArgument);
  EXPECT_EQ(TokenOf("condition", "ask"), kArgument);
}

TEST_F(HostTransferOrderTest, OneBranchOfManyIsEnough) {
  Define(Body("quiet").Add("neg", "Neg"));
  Define(Body("talks").Add("send", "XlaSendToHost"));
  Body body("main");
  body.Add("case", "Case");
  auto& branches = (*body.last()->mutable_attr())["branches"];
  for (const char* branch : {"quiet", "talks"}) {
    branches.mutable_list()->add_func()->set_name(branch);
  }
  body.Add("if", "If").Calls("then_branch", "quiet").Calls("else_branch", "quiet");
  Define(body);
  EXPECT_TRUE(Order());
  EXPECT_EQ(TokenOf("main", "case"), kArgument);
  EXPECT_EQ(TokenOf("main", "if"), "");
  EXPECT_EQ(TokenOf("talks", "send"), kArgument);
}

TEST_F(HostTransferOrderTest, SharedFunctionIsOrderedOnce) {
  Define(Body("shared").Add("first", "XlaSendToHost").Add("second", "XlaSendToHost"));
  Define(Body("main")
             .Add("one", "PartitionedCall")
             .Calls("f", "shared")
             .Add("two", "PartitionedCall")
             .Calls("f", "shared"));
  EXPECT_TRUE(Order());
  EXPECT_EQ(TokenOf("main", "two"), "one");
  EXPECT_EQ(Node("shared", "second").input_size(), 1);
}

TEST_F(HostTransferOrderTest, FunctionsOutOfReachAreLeftAlone) {
  Define(Body("elsewhere").Add("send", "XlaSendToHost"));
  Define(Body("main").Add("neg", "Neg"));
  EXPECT_FALSE(Order());
  EXPECT_EQ(TokenOf("elsewhere", "send"), "");
}

TEST_F(HostTransferOrderTest, RecursionEnds) {
  Define(
      Body("main").Add("again", "PartitionedCall").Calls("f", "main").Add("send", "XlaSendToHost"));
  EXPECT_TRUE(Order());
  EXPECT_EQ(TokenOf("main", "send"), kArgument);
}

}  // namespace
}  // namespace tf_tpu_ext
