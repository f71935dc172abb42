#include "cc/passes/fold_clusters.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/ops/host_update_ops.h"
#include "cc/ops/op_names.h"
#include "cc/passes/host_cluster.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/node_def_builder.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/graph/algorithm.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeDef;
using tensorflow::PartialTensorShape;

constexpr char kFolded[] = "cluster_step";

class FoldClustersTest : public ::testing::Test {
 protected:
  FoldClustersTest()
      : library_(tensorflow::OpRegistry::Global(), tensorflow::FunctionDefLibrary()),
        graph_(&library_) {
    RegisterHostUpdates();
    NodeDef* metadata = Define("metadata", "TPUReplicateMetadata", {});
    tensorflow::AddNodeAttr("num_replicas", 1, metadata);
    metadata_ = Add(*metadata);
  }

  // A node of the computation, and of the cluster if that has a name.
  NodeDef* Define(const std::string& name, const std::string& op,
                  const std::vector<std::string>& inputs, const std::string& cluster = "") {
    node_ = NodeDef();
    node_.set_name(name);
    node_.set_op(op);
    for (const std::string& input : inputs) node_.add_input(input);
    tensorflow::AddNodeAttr(kTpuReplicate, kFolded, &node_);
    if (!cluster.empty()) tensorflow::AddNodeAttr(kOutsideCompilation, cluster, &node_);
    return &node_;
  }

  Node* Add(const NodeDef& definition) {
    absl::Status status;
    Node* node = graph_.AddNode(definition, &status);
    EXPECT_TRUE(status.ok()) << status;
    nodes_[definition.name()] = node;
    for (int i = 0; i < definition.input_size(); ++i) {
      const std::string& input = definition.input(i);
      if (input[0] == '^') {
        graph_.AddControlEdge(nodes_.at(input.substr(1)), node);
      } else {
        graph_.AddEdge(nodes_.at(input), 0, node, i);
      }
    }
    return node;
  }

  // An argument of the computation, of shape [2] unless the shape is unknown.
  Node* Argument(const std::string& name, bool known_shape = true) {
    NodeDef* definition = Define(name, "_Arg", {});
    tensorflow::AddNodeAttr("T", tensorflow::DT_FLOAT, definition);
    tensorflow::AddNodeAttr("index", arguments_++, definition);
    const PartialTensorShape shape = known_shape ? PartialTensorShape({2}) : PartialTensorShape();
    tensorflow::AddNodeAttr("_output_shapes", std::vector<PartialTensorShape>{shape}, definition);
    return Add(*definition);
  }

  Node* Unary(const std::string& name, const std::string& op, const std::string& input,
              const std::string& cluster = "") {
    NodeDef* definition = Define(name, op, {input}, cluster);
    tensorflow::AddNodeAttr("T", tensorflow::DT_FLOAT, definition);
    return Add(*definition);
  }

  Node* Print(const std::string& name, const std::string& input, const std::string& cluster) {
    NodeDef* format = Define(name + "/text", "AsString", {input}, cluster);
    tensorflow::AddNodeAttr("T", tensorflow::DT_FLOAT, format);
    Add(*format);
    return Add(*Define(name, "PrintV2", {name + "/text"}, cluster));
  }

  FoldedGraph Fold(bool enabled = true, const std::set<ClusterPlace>& noted = {}) {
    tensorflow::FixupSourceAndSinkEdges(&graph_);
    absl::StatusOr<FoldedGraph> folded = FoldClusters(&graph_, &library_, enabled, noted);
    EXPECT_TRUE(folded.ok()) << folded.status();
    return *std::move(folded);
  }

  Node* Find(const std::string& name) const {
    for (Node* node : graph_.op_nodes()) {
      if (node->name() == name) return node;
    }
    return nullptr;
  }

  FunctionLibraryDefinition library_;
  Graph graph_;
  Node* metadata_;
  NodeDef node_;
  std::map<std::string, Node*> nodes_;
  int arguments_ = 0;
};

TEST_F(FoldClustersTest, PutsOneCallInThePlaceOfACluster) {
  Argument("x");
  Unary("sin", "Sin", "x", "0");
  Unary("cos", "Cos", "sin", "0");
  Unary("after", "Neg", "cos");
  const FoldedGraph folded = Fold();
  ASSERT_EQ(folded.clusters.size(), 1);
  EXPECT_EQ(folded.clusters[0].reason, "");
  EXPECT_EQ(Find("sin"), nullptr);
  EXPECT_EQ(folded.replaced.at("sin"), folded.replaced.at("cos"));
  Node* call = Find(folded.replaced.at("cos"));
  ASSERT_NE(call, nullptr);
  const Node* source;
  ASSERT_TRUE(call->input_node(0, &source).ok());
  EXPECT_EQ(source->name(), "x");
  ASSERT_TRUE(Find("after")->input_node(0, &source).ok());
  EXPECT_EQ(source, call);
  EXPECT_EQ(call->attrs().Find(kTpuReplicate)->s(), kFolded);
  EXPECT_EQ(call->attrs().Find(kOutsideCompilation), nullptr);

  tensorflow::FunctionDefLibrary functions;
  ASSERT_TRUE(functions.ParseFromString(call->attrs().Find(kHostFunctionLibrary)->s()));
  ASSERT_EQ(functions.function_size(), 1);
  EXPECT_EQ(functions.function(0).signature().name(), folded.clusters[0].counted_as);
  EXPECT_EQ(functions.function(0).signature().input_arg_size(), 1);
  for (const NodeDef& node : functions.function(0).node_def()) {
    EXPECT_EQ(node.attr().count(kOutsideCompilation), 0);
  }
}

TEST_F(FoldClustersTest, OnlyReportsWhenItIsDisabled) {
  Argument("x");
  Unary("sin", "Sin", "x", "0");
  const FoldedGraph folded = Fold(/*enabled=*/false);
  ASSERT_EQ(folded.clusters.size(), 1);
  EXPECT_NE(folded.clusters[0].reason, "");
  EXPECT_NE(Find("sin"), nullptr);
}

TEST_F(FoldClustersTest, LeavesAClusterThatTakesATensorOfTheHost) {
  Argument("x");
  Node* host = Argument("host");
  host->ClearAttr(kTpuReplicate);
  NodeDef* add = Define("add", "AddV2", {"x", "host"}, "0");
  tensorflow::AddNodeAttr("T", tensorflow::DT_FLOAT, add);
  Add(*add);
  const FoldedGraph folded = Fold();
  EXPECT_EQ(folded.clusters[0].reason, "it takes a tensor of the host: host (_Arg)");
  EXPECT_TRUE(folded.replaced.empty());
}

TEST_F(FoldClustersTest, LeavesAResultOfUnknownShape) {
  Argument("x", /*known_shape=*/false);
  Unary("sin", "Sin", "x", "0");
  Unary("after", "Neg", "sin");
  EXPECT_EQ(Fold().clusters[0].reason, "the shape of its result is not known: sin (Sin)");
}

TEST_F(FoldClustersTest, LeavesAStringThatLeaves) {
  Argument("x");
  NodeDef* text = Define("text", "AsString", {"x"}, "0");
  tensorflow::AddNodeAttr("T", tensorflow::DT_FLOAT, text);
  Add(*text);
  NodeDef* identity = Define("identity", "Identity", {"text"});
  tensorflow::AddNodeAttr("T", tensorflow::DT_STRING, identity);
  Add(*identity);
  EXPECT_EQ(Fold().clusters[0].reason, "it gives a string: text (AsString)");
}

TEST_F(FoldClustersTest, LeavesSharedState) {
  Argument("x");
  NodeDef* variable = Define("variable", "VarHandleOp", {}, "0");
  tensorflow::AddNodeAttr("dtype", tensorflow::DT_FLOAT, variable);
  tensorflow::AddNodeAttr("shape", tensorflow::TensorShape({2}), variable);
  Add(*variable);
  NodeDef* assign = Define("assign", "AssignVariableOp", {"variable", "x"}, "0");
  tensorflow::AddNodeAttr("dtype", tensorflow::DT_FLOAT, assign);
  Add(*assign);
  EXPECT_NE(Fold().clusters[0].reason.find("it touches state of the host"), std::string::npos);
}

TEST_F(FoldClustersTest, NotesWhoReachesAClusterThatStays) {
  Argument("x");
  Unary("sin", "Sin", "x", "0");
  Unary("cos", "Cos", "x", "1");
  const FoldedGraph folded = Fold(/*enabled=*/false, {{"", "1"}, {"", "2"}, {"f", "0"}});
  ASSERT_EQ(folded.clusters.size(), 2);
  EXPECT_EQ(folded.clusters[0].noted_as, "");
  const std::string& noted_as = folded.clusters[1].noted_as;
  ASSERT_NE(noted_as, "");
  const Node* call = nullptr;
  for (const Node* node : graph_.op_nodes()) {
    const tensorflow::AttrValue* function = node->attrs().Find(kHostFunctionName);
    if (function == nullptr) continue;
    EXPECT_EQ(call, nullptr);
    call = node;
    EXPECT_EQ(function->s(), noted_as);
  }
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(call->attrs().Find(kOutsideCompilation), nullptr);
  EXPECT_EQ(call->attrs().Find(kTpuReplicate)->s(), Find("cos")->attrs().Find(kTpuReplicate)->s());
  EXPECT_EQ(call->num_inputs(), 0);
  // Where the cluster is not reached, neither is the call.
  ASSERT_EQ(call->in_edges().size(), 1u);
  EXPECT_EQ((*call->in_edges().begin())->src(), Find("cos"));
}

TEST_F(FoldClustersTest, LeavesAClusterThatSurroundsOpsOfTheCore) {
  Argument("x");
  Unary("first", "Sin", "x", "0");
  Unary("between", "Neg", "first");
  Unary("second", "Cos", "between", "0");
  EXPECT_EQ(Fold().clusters[0].reason, "the rest of the computation works between its ops");
}

TEST_F(FoldClustersTest, FoldsTheOneOfTwoInterlockedClusters) {
  // Each alone could be one call; together, they would wait for each other.
  Argument("x");
  Unary("a1", "Sin", "x", "a");
  Unary("b1", "Sin", "a1", "b");
  Unary("b2", "Sin", "x", "b");
  Unary("a2", "Sin", "b2", "a");
  const FoldedGraph folded = Fold();
  ASSERT_EQ(folded.clusters.size(), 2);
  EXPECT_EQ(folded.clusters[0].reason, "");
  EXPECT_NE(folded.clusters[1].reason, "");
}

TEST_F(FoldClustersTest, FoldsClustersWithEffectsAllOrNone) {
  Argument("x");
  Node* host = Argument("host");
  host->ClearAttr(kTpuReplicate);
  Print("first", "x", "0");
  Print("second", "host", "1");
  Unary("pure", "Sin", "x", "2");
  const FoldedGraph folded = Fold();
  ASSERT_EQ(folded.clusters.size(), 3);
  EXPECT_EQ(folded.clusters[0].reason,
            "its effects keep their order with those of cluster 1, which stays");
  EXPECT_NE(folded.clusters[1].reason, "");
  EXPECT_EQ(folded.clusters[2].reason, "");
}

TEST_F(FoldClustersTest, LeavesReplicasOfSeveralCores) {
  metadata_->ClearAttr("num_cores_per_replica");
  metadata_->AddAttr("num_cores_per_replica", 2);
  Argument("x");
  Unary("sin", "Sin", "x", "0");
  EXPECT_EQ(Fold().clusters[0].reason, "its replica has several cores");
}

TEST_F(FoldClustersTest, LeavesConstantsToTheComputation) {
  Argument("x");
  NodeDef* sizes = Define("sizes", "Const", {}, "0");
  tensorflow::Tensor value(tensorflow::DT_INT32, {1});
  value.flat<int32_t>()(0) = 2;
  tensorflow::AddNodeAttr("dtype", tensorflow::DT_INT32, sizes);
  tensorflow::AddNodeAttr("value", value, sizes);
  Add(*sizes);
  const auto reshape = [&](const std::string& name, const std::string& cluster) {
    NodeDef* definition = Define(name, "Reshape", {"x", "sizes"}, cluster);
    tensorflow::AddNodeAttr("T", tensorflow::DT_FLOAT, definition);
    tensorflow::AddNodeAttr("Tshape", tensorflow::DT_INT32, definition);
    Add(*definition);
  };
  reshape("inside", "0");
  reshape("outside", "");
  const FoldedGraph folded = Fold();
  EXPECT_EQ(folded.clusters[0].reason, "");
  ASSERT_NE(Find("sizes"), nullptr);
  EXPECT_EQ(Find("sizes")->attrs().Find(kOutsideCompilation), nullptr);
  EXPECT_EQ(Find(folded.replaced.at("inside"))->num_inputs(), 1);
}

TEST_F(FoldClustersTest, FoldsWithinFunctionsThatTheComputationCalls) {
  FunctionDef body;
  body.mutable_signature()->set_name("body");
  auto* argument = body.mutable_signature()->add_input_arg();
  argument->set_name("x");
  argument->set_type(tensorflow::DT_FLOAT);
  auto* result = body.mutable_signature()->add_output_arg();
  result->set_name("y");
  result->set_type(tensorflow::DT_FLOAT);
  tensorflow::AttrValue shapes;
  PartialTensorShape({2}).AsProto(shapes.mutable_list()->add_shape());
  (*(*body.mutable_arg_attr())[0].mutable_attr())["_output_shapes"] = shapes;
  NodeDef* sin = body.add_node_def();
  sin->set_name("sin");
  sin->set_op("Sin");
  sin->add_input("x");
  tensorflow::AddNodeAttr("T", tensorflow::DT_FLOAT, sin);
  tensorflow::AddNodeAttr(kOutsideCompilation, "0", sin);
  (*body.mutable_ret())["y"] = "sin:y:0";
  ASSERT_TRUE(library_.AddFunctionDef(body).ok());

  Argument("x");
  NodeDef* definition = Define("call", "StatefulPartitionedCall", {"x"});
  tensorflow::AddNodeAttr("Tin", tensorflow::DataTypeVector{tensorflow::DT_FLOAT}, definition);
  tensorflow::AddNodeAttr("Tout", tensorflow::DataTypeVector{tensorflow::DT_FLOAT}, definition);
  tensorflow::NameAttrList function;
  function.set_name("body");
  tensorflow::AddNodeAttr("f", function, definition);
  Node* call = Add(*definition);
  const FoldedGraph folded = Fold();
  ASSERT_EQ(folded.clusters.size(), 1);
  EXPECT_EQ(folded.clusters[0].reason, "");
  const std::string name = call->attrs().Find("f")->func().name();
  EXPECT_NE(name, "body");
  const FunctionDef* changed = library_.Find(name);
  ASSERT_NE(changed, nullptr);
  ASSERT_EQ(changed->node_def_size(), 1);
  EXPECT_EQ(changed->node_def(0).op(), kBridgeHostComputeOp);
  // Others may call the original.
  EXPECT_EQ(library_.Find("body")->node_def(0).op(), "Sin");
}

}  // namespace
}  // namespace tf_tpu_ext
