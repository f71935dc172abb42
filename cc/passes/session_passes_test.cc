// The small passes on graphs of sessions and functions, which can be reached only through
// TensorFlow's registry: an Identity for each computation, groups of launches, shapes of packed
// variables.
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/ops/op_names.h"
#include "cc/runtime/launch_ids.h"
#include "gtest/gtest.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AddNodeAttr;
using tensorflow::DataType;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeDef;
using tensorflow::OptimizationPassRegistry;

std::string CoreDevice(int number) {
  return absl::StrCat("/job:localhost/replica:0/task:0/device:TPU:", number);
}

class SessionPassesTest : public ::testing::Test {
 protected:
  SessionPassesTest()
      : library_(tensorflow::OpRegistry::Global(), tensorflow::FunctionDefLibrary()),
        graph_(std::make_unique<Graph>(&library_)) {}

  template <typename Fill>
  Node* Add(const std::string& name, const std::string& op, const std::vector<Node*>& inputs,
            Fill fill) {
    NodeDef definition;
    definition.set_name(name);
    definition.set_op(op);
    fill(&definition);
    const tensorflow::OpDef* op_def = nullptr;
    EXPECT_TRUE(library_.LookUpOpDef(op, &op_def).ok());
    tensorflow::AddDefaultsToNodeDef(*op_def, &definition);
    absl::StatusOr<Node*> node = graph_->AddNode(std::move(definition));
    EXPECT_TRUE(node.ok()) << node.status();
    for (size_t i = 0; i < inputs.size(); ++i) {
      graph_->AddEdge(inputs[i], 0, *node, static_cast<int>(i));
    }
    return *node;
  }

  Node* Unary(const std::string& name, const std::string& op, Node* input,
              const std::string& computation = "") {
    return Add(name, op, {input}, [&](NodeDef* node) {
      AddNodeAttr("T", tensorflow::DT_FLOAT, node);
      if (!computation.empty()) AddNodeAttr(kTpuReplicate, computation, node);
    });
  }

  Node* Placeholder(const std::string& name, DataType type = tensorflow::DT_FLOAT) {
    return Add(name, "Placeholder", {},
               [type](NodeDef* node) { AddNodeAttr("dtype", type, node); });
  }

  absl::Status Run(const std::string& pass_name, bool is_function_graph = false) {
    tensorflow::FixupSourceAndSinkEdges(graph_.get());
    tensorflow::GraphOptimizationPassOptions options;
    options.graph = &graph_;
    options.flib_def = &library_;
    options.is_function_graph = is_function_graph;
    const auto& groups = OptimizationPassRegistry::Global()->groups();
    for (const auto& [phase, passes] : groups.at(OptimizationPassRegistry::PRE_PLACEMENT)) {
      for (const auto& pass : passes) {
        if (pass->name() == pass_name) return pass->Run(options);
      }
    }
    return absl::NotFoundError(pass_name);
  }

  static const Node* InputOf(const Node* node, int index = 0) {
    const Node* input = nullptr;
    EXPECT_TRUE(node->input_node(index, &input).ok());
    return input;
  }

  std::vector<const Node*> NodesOf(const std::string& type) const {
    std::vector<const Node*> nodes;
    for (const Node* node : graph_->op_nodes()) {
      if (node->type_string() == type) nodes.push_back(node);
    }
    return nodes;
  }

  FunctionLibraryDefinition library_;
  std::unique_ptr<Graph> graph_;
};

class SharedIdentitiesTest : public SessionPassesTest {};

TEST_F(SharedIdentitiesTest, EachComputationGetsOne) {
  Node* rate = Placeholder("rate");
  Node* shared = Unary("shared", "Identity", rate);
  Node* train = Unary("train", "Neg", shared, "train");
  Node* evaluate = Unary("evaluate", "Neg", shared, "evaluate");
  Node* on_host = Unary("on_host", "Neg", shared);
  ASSERT_TRUE(Run("SharedIdentities").ok());
  EXPECT_EQ(NodesOf("Identity").size(), 2);
  EXPECT_NE(InputOf(train), InputOf(evaluate));
  for (const Node* user : {train, evaluate}) EXPECT_EQ(InputOf(InputOf(user)), rate);
  // The first computation by name keeps the node, and so does what the host reads.
  EXPECT_EQ(InputOf(evaluate), shared);
  EXPECT_EQ(InputOf(on_host), shared);
}

TEST_F(SharedIdentitiesTest, ChainsAreCopiedToTheirBeginning) {
  Node* rate = Placeholder("rate");
  Node* first = Unary("first", "Identity", rate);
  Node* second = Unary("second", "Identity", first);
  Node* a = Unary("a", "Neg", second, "a");
  Node* b = Unary("b", "Neg", second, "b");
  ASSERT_TRUE(Run("SharedIdentities").ok());
  EXPECT_EQ(NodesOf("Identity").size(), 4);
  EXPECT_NE(InputOf(InputOf(a)), InputOf(InputOf(b)));
  EXPECT_EQ(InputOf(InputOf(InputOf(a))), rate);
  EXPECT_EQ(InputOf(InputOf(InputOf(b))), rate);
}

TEST_F(SharedIdentitiesTest, OneComputationSharesWithItself) {
  Node* shared = Unary("shared", "Identity", Placeholder("rate"));
  Unary("first", "Neg", shared, "step");
  Unary("second", "Neg", shared, "step");
  ASSERT_TRUE(Run("SharedIdentities").ok());
  EXPECT_EQ(NodesOf("Identity").size(), 1);
}

TEST_F(SharedIdentitiesTest, FunctionsAreLeftAsTheyAre) {
  Node* shared = Unary("shared", "Identity", Placeholder("rate"));
  Unary("a", "Neg", shared, "a");
  Unary("b", "Neg", shared, "b");
  ASSERT_TRUE(Run("SharedIdentities", /*is_function_graph=*/true).ok());
  EXPECT_EQ(NodesOf("Identity").size(), 1);
}

class LaunchGroupsTest : public SessionPassesTest {
 protected:
  // A compile op for `cores`, with an execute op for each.
  Node* Compile(const std::string& name, const std::string& module, int num_replicas,
                const std::vector<int>& cores) {
    tensorflow::tpu::TPUCompileMetadataProto metadata;
    metadata.set_num_replicas(num_replicas);
    metadata.set_num_cores_per_replica(1);
    return CompileWith(name, module, metadata.SerializeAsString(), cores);
  }

  Node* CompileWith(const std::string& name, const std::string& module, const std::string& metadata,
                    const std::vector<int>& cores) {
    Node* compile = Add(name, "_TPUCompileMlir", {}, [&](NodeDef* node) {
      AddNodeAttr("NumDynamicShapes", 0, node);
      AddNodeAttr("num_computations", 1, node);
      AddNodeAttr("mlir_module", module, node);
      AddNodeAttr("metadata", metadata, node);
    });
    for (int core : cores) {
      Node* execute =
          Add(absl::StrCat(name, "/execute", core), "TPUExecute", {}, [](NodeDef* node) {
            AddNodeAttr("Targs", std::vector<DataType>{}, node);
            AddNodeAttr("Tresults", std::vector<DataType>{}, node);
          });
      execute->set_requested_device(CoreDevice(core));
      graph_->AddEdge(compile, 1, execute, 0);
    }
    return compile;
  }

  static std::string GroupOf(const Node* compile) {
    const tensorflow::AttrValue* group = compile->attrs().Find(kLaunchGroup);
    return group == nullptr ? "" : group->s();
  }
};

TEST_F(LaunchGroupsTest, CompilationsOfOneStepBelongTogether) {
  const Node* first = Compile("first", "module", 2, {0});
  const Node* second = Compile("second", "module", 2, {1});
  ASSERT_TRUE(Run("LaunchGroups").ok());
  EXPECT_NE(GroupOf(first), "");
  EXPECT_EQ(GroupOf(first), GroupOf(second));
  EXPECT_EQ(first->attrs().Find(kLaunchMember)->s(), CoreDevice(0));
  EXPECT_EQ(second->attrs().Find(kLaunchMember)->s(), CoreDevice(1));
}

TEST_F(LaunchGroupsTest, TheSameStepTwiceIsTwoGroups) {
  const Node* a0 = Compile("a0", "module", 2, {0});
  const Node* a1 = Compile("a1", "module", 2, {1});
  const Node* b0 = Compile("b0", "module", 2, {0});
  const Node* b1 = Compile("b1", "module", 2, {1});
  ASSERT_TRUE(Run("LaunchGroups").ok());
  EXPECT_EQ(GroupOf(a0), GroupOf(a1));
  EXPECT_EQ(GroupOf(b0), GroupOf(b1));
  EXPECT_NE(GroupOf(a0), GroupOf(b0));
}

TEST_F(LaunchGroupsTest, OtherModulesAreOtherGroups) {
  const Node* one = Compile("one", "module", 2, {0});
  const Node* other = Compile("other", "another module", 2, {1});
  ASSERT_TRUE(Run("LaunchGroups").ok());
  EXPECT_NE(GroupOf(one), GroupOf(other));
}

TEST_F(LaunchGroupsTest, OneCompilationForAllReplicasNeedsNoGroup) {
  const Node* all = Compile("all", "module", 2, {0, 1});
  const Node* none = Compile("none", "module", 2, {});
  const Node* damaged = CompileWith("damaged", "module", "\xff", {0});
  ASSERT_TRUE(Run("LaunchGroups").ok());
  EXPECT_EQ(GroupOf(all), "");
  EXPECT_EQ(GroupOf(none), "");
  EXPECT_EQ(GroupOf(damaged), "");
}

class PackedVariableShapesTest : public SessionPassesTest {
 protected:
  // A variable on the device, its shape, and a program on core 1 that reads it.
  Node* ShapeOfVariableOn(const std::string& device) {
    Node* variable = Placeholder("variable", tensorflow::DT_RESOURCE);
    variable->set_assigned_device_name(device);
    Node* execute = Add("execute", "TPUExecute", {variable}, [](NodeDef* node) {
      AddNodeAttr("Targs", std::vector<DataType>{tensorflow::DT_RESOURCE}, node);
      AddNodeAttr("Tresults", std::vector<DataType>{}, node);
    });
    execute->set_requested_device(CoreDevice(1));
    return Add("shape", "VariableShape", {variable}, [](NodeDef*) {});
  }
};

TEST_F(PackedVariableShapesTest, AreAskedOnOneOfTheCores) {
  Node* shape = ShapeOfVariableOn("/job:localhost/replica:0/task:0/device:COMPOSITE:0");
  ASSERT_TRUE(Run("PackedVariableShapes").ok());
  EXPECT_EQ(shape->requested_device(), CoreDevice(1));
}

TEST_F(PackedVariableShapesTest, AreAskedOnACoreAfterTheBridgeHasRewrittenTheGraph) {
  Node* shape = ShapeOfVariableOn("");
  const Node* variable = nullptr;
  ASSERT_TRUE(shape->input_node(0, &variable).ok());
  const_cast<Node*>(variable)->set_requested_device(
      "/job:localhost/replica:0/task:0/device:COMPOSITE:0");
  ASSERT_TRUE(Run("PackedVariableShapes").ok());
  EXPECT_EQ(shape->requested_device(), CoreDevice(1));
}

TEST_F(PackedVariableShapesTest, OthersStayWhereTheyAre) {
  Node* shape = ShapeOfVariableOn(CoreDevice(0));
  ASSERT_TRUE(Run("PackedVariableShapes").ok());
  EXPECT_EQ(shape->requested_device(), "");
}

TEST_F(PackedVariableShapesTest, ThePlaceOfTheUserStays) {
  Node* shape = ShapeOfVariableOn("/job:localhost/replica:0/task:0/device:COMPOSITE:0");
  shape->set_requested_device("/device:CPU:0");
  ASSERT_TRUE(Run("PackedVariableShapes").ok());
  EXPECT_EQ(shape->requested_device(), "/device:CPU:0");
}

}  // namespace
}  // namespace tf_tpu_ext
