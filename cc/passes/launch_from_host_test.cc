#include "cc/passes/launch_from_host.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/ops/op_names.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/platform/env.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::DataType;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeDef;

constexpr char kTask[] = "/job:localhost/replica:0/task:0";

std::string Core(int number) { return absl::StrCat(kTask, "/device:TPU:", number); }
std::string Host() { return absl::StrCat(kTask, "/device:CPU:0"); }
std::string Composite() { return absl::StrCat(kTask, "/device:COMPOSITE:0"); }

// A step on two cores: each reads a variable, which has a value on each of them, and a batch.
class LaunchFromHostTest : public ::testing::Test {
 protected:
  LaunchFromHostTest()
      : library_(tensorflow::OpRegistry::Global(), tensorflow::FunctionDefLibrary()),
        graph_(&library_) {
    compile_ = Add("compile", "Const", Host(), {}, [](NodeDef* node) {
      tensorflow::AddNodeAttr("dtype", tensorflow::DT_STRING, node);
      tensorflow::AddNodeAttr("value", tensorflow::Tensor("key"), node);
    });
    variable_ = AddArgument("variable", 0, tensorflow::DT_RESOURCE, Composite());
    for (int core = 0; core < 2; ++core) {
      Node* batch =
          AddArgument(absl::StrCat("batch", core), 1 + core, tensorflow::DT_FLOAT, Core(core));
      executes_.push_back(Add(
          absl::StrCat("execute", core), "TPUExecute", Core(core), {variable_, batch, compile_},
          [](NodeDef* node) {
            tensorflow::AddNodeAttr(
                "Targs", std::vector<DataType>{tensorflow::DT_RESOURCE, tensorflow::DT_FLOAT},
                node);
            tensorflow::AddNodeAttr("Tresults", std::vector<DataType>{tensorflow::DT_FLOAT}, node);
          }));
    }
  }

  template <typename Fill>
  Node* Add(const std::string& name, const std::string& op, const std::string& device,
            const std::vector<Node*>& inputs, Fill fill) {
    NodeDef definition;
    definition.set_name(name);
    definition.set_op(op);
    fill(&definition);
    absl::StatusOr<Node*> node = graph_.AddNode(std::move(definition));
    EXPECT_TRUE(node.ok()) << node.status();
    (*node)->set_assigned_device_name(device);
    for (size_t i = 0; i < inputs.size(); ++i) graph_.AddEdge(inputs[i], 0, *node, i);
    return *node;
  }

  Node* AddArgument(const std::string& name, int index, DataType type, const std::string& device) {
    return Add(name, "_Arg", device, {}, [&](NodeDef* node) {
      tensorflow::AddNodeAttr("T", type, node);
      tensorflow::AddNodeAttr("index", index, node);
    });
  }

  Node* AddOfType(const std::string& name, const std::string& op, const std::string& device,
                  Node* input, DataType type) {
    return Add(name, op, device, {input}, [&](NodeDef* node) {
      tensorflow::AddNodeAttr("T", type, node);
      if (op == "_Retval") tensorflow::AddNodeAttr("index", 0, node);
    });
  }

  // Makes the execute op read the node's output in place of its variable.
  void ReplaceInput(Node* execute, Node* node, int output) {
    const tensorflow::Edge* edge = nullptr;
    ASSERT_TRUE(execute->input_edge(0, &edge).ok());
    graph_.RemoveEdge(edge);
    graph_.AddEdge(node, output, execute, 0);
  }

  absl::Status Move() {
    return LaunchFromHost({{Composite(), {Core(0), Core(1)}}}, nullptr, &graph_);
  }

  static const Node* Input(const Node* node, int number) {
    const Node* input = nullptr;
    EXPECT_TRUE(node->input_node(number, &input).ok());
    return input;
  }

  int NodesOn(const std::string& device) const {
    int nodes = 0;
    for (const Node* node : graph_.op_nodes()) nodes += node->assigned_device_name() == device;
    return nodes;
  }

  FunctionLibraryDefinition library_;
  Graph graph_;
  Node* compile_;
  Node* variable_;
  std::vector<Node*> executes_;
};

// A device in this process, or in another one.
class SomeDevice : public tensorflow::Device {
 public:
  SomeDevice(const tensorflow::DeviceAttributes& attributes, bool is_local)
      : Device(tensorflow::Env::Default(), attributes), is_local_(is_local) {}
  absl::Status Sync() override { return absl::OkStatus(); }
  bool IsLocal() const override { return is_local_; }

 private:
  const bool is_local_;
};

TEST_F(LaunchFromHostTest, CoresOfOtherProcessesKeepTheirs) {
  tensorflow::DeviceSet devices;
  std::vector<std::unique_ptr<SomeDevice>> owned;
  for (int core = 0; core < 2; ++core) {
    tensorflow::DeviceAttributes attributes;
    attributes.set_name(Core(core));
    attributes.set_device_type("TPU");
    owned.push_back(std::make_unique<SomeDevice>(attributes, /*is_local=*/core == 0));
    devices.AddDevice(owned.back().get());
  }
  ASSERT_TRUE(LaunchFromHost({{Composite(), {Core(0), Core(1)}}}, &devices, &graph_).ok());
  EXPECT_EQ(executes_[0]->assigned_device_name(), Host());
  EXPECT_EQ(executes_[1]->assigned_device_name(), Core(1));
  EXPECT_EQ(NodesOn(Core(0)), 0);
}

TEST_F(LaunchFromHostTest, LeavesNothingOnCoresThatOnlyLaunch) {
  ASSERT_TRUE(Move().ok());
  EXPECT_EQ(NodesOn(Core(0)), 0);
  EXPECT_EQ(NodesOn(Core(1)), 0);
  EXPECT_EQ(NodesOn(Composite()), 0);
  for (int core = 0; core < 2; ++core) {
    const Node* execute = executes_[core];
    EXPECT_EQ(execute->assigned_device_name(), Host());
    std::string device;
    ASSERT_TRUE(tensorflow::GetNodeAttr(execute->attrs(), kCoreDevice, &device).ok());
    EXPECT_EQ(device, Core(core));
    const Node* variable = Input(execute, 0);
    int index = -1, sub_index = -1;
    ASSERT_TRUE(tensorflow::GetNodeAttr(variable->attrs(), "index", &index).ok());
    ASSERT_TRUE(tensorflow::GetNodeAttr(variable->attrs(), "sub_index", &sub_index).ok());
    EXPECT_EQ(index, 0);
    EXPECT_EQ(sub_index, core);
    EXPECT_EQ(Input(execute, 1)->name(), absl::StrCat("batch", core));
    EXPECT_EQ(Input(execute, 2), compile_);
  }
}

TEST_F(LaunchFromHostTest, CoreOfAResultKeepsItsNodes) {
  AddOfType("result", "_Retval", Core(0), executes_[0], tensorflow::DT_FLOAT);
  ASSERT_TRUE(Move().ok());
  EXPECT_EQ(executes_[0]->assigned_device_name(), Core(0));
  EXPECT_EQ(executes_[0]->attrs().Find(kCoreDevice), nullptr);
  EXPECT_EQ(Input(executes_[0], 0), variable_);
  EXPECT_EQ(executes_[1]->assigned_device_name(), Host());
}

TEST_F(LaunchFromHostTest, CoreThatComputesKeepsItsNodes) {
  AddOfType("square", "Square", Core(1), executes_[1], tensorflow::DT_FLOAT);
  ASSERT_TRUE(Move().ok());
  EXPECT_EQ(executes_[0]->assigned_device_name(), Host());
  EXPECT_EQ(executes_[1]->assigned_device_name(), Core(1));
}

TEST_F(LaunchFromHostTest, CoreWithoutProgramKeepsItsNodes) {
  Node* batch = AddArgument("other", 3, tensorflow::DT_FLOAT, Core(2));
  ASSERT_TRUE(Move().ok());
  EXPECT_EQ(batch->assigned_device_name(), Core(2));
}

TEST_F(LaunchFromHostTest, IdentitiesComeAlong) {
  Node* identity = AddOfType("identity", "Identity", Core(0), executes_[0], tensorflow::DT_FLOAT);
  ASSERT_TRUE(Move().ok());
  EXPECT_EQ(identity->assigned_device_name(), Host());
}

TEST_F(LaunchFromHostTest, IteratorsAndVariablesAreReadByTheHost) {
  Node* iterator = AddArgument("iterator", 3, tensorflow::DT_RESOURCE, Core(0));
  Node* batch = Add("next", "IteratorGetNext", Core(0), {iterator}, [](NodeDef* node) {
    tensorflow::AddNodeAttr("output_types", std::vector<DataType>{tensorflow::DT_FLOAT}, node);
    tensorflow::AddNodeAttr("output_shapes", std::vector<tensorflow::TensorShape>{{}}, node);
  });
  Node* bound = Add("bound", "ReadVariableOp", Core(1), {variable_}, [](NodeDef* node) {
    tensorflow::AddNodeAttr("dtype", tensorflow::DT_FLOAT, node);
  });
  ReplaceInput(executes_[0], batch, 0);
  ReplaceInput(executes_[1], bound, 0);
  ASSERT_TRUE(Move().ok());
  EXPECT_EQ(NodesOn(Core(0)) + NodesOn(Core(1)) + NodesOn(Composite()), 0);
  for (const Node* read : {batch, bound}) {
    const Node* handle = Input(read, 0);
    EXPECT_EQ(handle->type_string(), kHostHandleOp);
    EXPECT_EQ(handle->assigned_device_name(), Host());
  }
  EXPECT_EQ(Input(Input(batch, 0), 0), iterator);
  int sub_index = -1;
  const Node* of_core = Input(Input(bound, 0), 0);
  ASSERT_TRUE(tensorflow::GetNodeAttr(of_core->attrs(), "sub_index", &sub_index).ok());
  EXPECT_EQ(sub_index, 1);
}

TEST_F(LaunchFromHostTest, ValuesOfSeveralDevicesThatAreNoArgumentsStay) {
  Node* copy = Add("copy", "Merge", Composite(), {variable_, variable_}, [](NodeDef* node) {
    tensorflow::AddNodeAttr("T", tensorflow::DT_RESOURCE, node);
    tensorflow::AddNodeAttr("N", 2, node);
  });
  ReplaceInput(executes_[1], copy, 0);
  ASSERT_TRUE(Move().ok());
  EXPECT_EQ(executes_[0]->assigned_device_name(), Host());
  EXPECT_EQ(executes_[1]->assigned_device_name(), Core(1));
  EXPECT_EQ(Input(copy, 0), variable_);
}

TEST_F(LaunchFromHostTest, ArgumentsAreTakenIntoLoopsOfTheHost) {
  Node* rounds = AddOfType("rounds", "Identity", Host(), executes_[0], tensorflow::DT_FLOAT);
  Node* entered = Add("enter", "Enter", Composite(), {variable_}, [](NodeDef* node) {
    tensorflow::AddNodeAttr("T", tensorflow::DT_RESOURCE, node);
    tensorflow::AddNodeAttr("frame_name", "loop", node);
    tensorflow::AddNodeAttr("is_constant", true, node);
  });
  Node* inside = AddOfType("inside", "Identity", Composite(), entered, tensorflow::DT_RESOURCE);
  graph_.AddControlEdge(rounds, inside);
  for (Node* execute : executes_) ReplaceInput(execute, inside, 0);
  Node* batch = AddOfType("next", "NextIteration", Core(0), executes_[0], tensorflow::DT_FLOAT);
  ASSERT_TRUE(Move().ok());
  EXPECT_EQ(batch->assigned_device_name(), Host());
  EXPECT_EQ(NodesOn(Core(0)) + NodesOn(Core(1)) + NodesOn(Composite()), 0);
  for (int core = 0; core < 2; ++core) {
    const Node* identity = Input(executes_[core], 0);
    EXPECT_TRUE(identity->IsIdentity());
    bool after_rounds = false;
    for (const tensorflow::Edge* edge : identity->in_edges()) {
      after_rounds = after_rounds || (edge->IsControlEdge() && edge->src() == rounds);
    }
    EXPECT_TRUE(after_rounds);
    const Node* enter = Input(identity, 0);
    std::string frame;
    ASSERT_TRUE(tensorflow::GetNodeAttr(enter->attrs(), "frame_name", &frame).ok());
    EXPECT_EQ(frame, "loop");
    int sub_index = -1;
    ASSERT_TRUE(tensorflow::GetNodeAttr(Input(enter, 0)->attrs(), "sub_index", &sub_index).ok());
    EXPECT_EQ(sub_index, core);
  }
}

TEST_F(LaunchFromHostTest, ArgumentsAreTakenIntoBranchesOfTheHost) {
  Node* taken = Add("taken", "Const", Host(), {}, [](NodeDef* node) {
    tensorflow::AddNodeAttr("dtype", tensorflow::DT_BOOL, node);
    tensorflow::AddNodeAttr("value", tensorflow::Tensor(true), node);
  });
  Node* branch = Add("branch", "Switch", Composite(), {variable_, taken}, [](NodeDef* node) {
    tensorflow::AddNodeAttr("T", tensorflow::DT_RESOURCE, node);
  });
  for (Node* execute : executes_) ReplaceInput(execute, branch, 1);
  ASSERT_TRUE(Move().ok());
  EXPECT_EQ(NodesOn(Core(0)) + NodesOn(Core(1)) + NodesOn(Composite()), 0);
  for (const Node* execute : executes_) {
    const tensorflow::Edge* edge = nullptr;
    ASSERT_TRUE(execute->input_edge(0, &edge).ok());
    EXPECT_EQ(edge->src_output(), 1);
    EXPECT_TRUE(edge->src()->IsSwitch());
    EXPECT_EQ(Input(edge->src(), 1), taken);
  }
}

TEST_F(LaunchFromHostTest, ArgumentWithoutAValueForTheCoreIsAnError) {
  const absl::Status status = LaunchFromHost({{Composite(), {Core(0), Core(5)}}}, nullptr, &graph_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(std::string(status.message()).find("variable"), std::string::npos) << status;
}

}  // namespace
}  // namespace tf_tpu_ext
