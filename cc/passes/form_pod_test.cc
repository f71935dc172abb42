// The pass that forms pods, on graphs as the bridge produces them, for clusters of fake devices.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/device/virtual_device.h"
#include "cc/ops/op_names.h"
#include "cc/pods/pod.h"
#include "gtest/gtest.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/framework/device_attributes.pb.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::DataType;
using tensorflow::Edge;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeDef;
using tensorflow::OptimizationPassRegistry;

// A device on which nothing runs.
class ClusterDevice : public tensorflow::Device {
 public:
  explicit ClusterDevice(const tensorflow::DeviceAttributes& attributes)
      : Device(tensorflow::Env::Default(), attributes) {}
  absl::Status Sync() override { return absl::OkStatus(); }
};

std::string Task(int task, const std::string& job = "worker") {
  return absl::StrCat("/job:", job, "/replica:0/task:", task);
}
std::string OnTask(int task, const std::string& device) {
  return absl::StrCat(Task(task), "/device:", device);
}

class FormPodTest : public ::testing::Test {
 protected:
  FormPodTest()
      : library_(tensorflow::OpRegistry::Global(), tensorflow::FunctionDefLibrary()),
        graph_(std::make_unique<Graph>(&library_)) {}

  void AddDevice(const std::string& task, const std::string& type, int number,
                 uint64_t incarnation = 1) {
    tensorflow::DeviceAttributes attributes;
    attributes.set_name(absl::StrCat(task, "/device:", type, ":", number));
    attributes.set_device_type(type);
    attributes.set_incarnation(incarnation);
    devices_.push_back(std::make_unique<ClusterDevice>(attributes));
    device_set_.AddDevice(devices_.back().get());
  }

  // A worker with the devices that it serves.
  void AddWorker(const std::string& task, int cores, uint64_t incarnation) {
    AddDevice(task, tensorflow::DEVICE_CPU, 0, incarnation);
    for (int core = 0; core < cores; ++core) AddDevice(task, kTpuDeviceType, core);
    AddDevice(task, kTpuSystemDeviceType, 0);
  }
  void AddTwoWorkers() {
    AddWorker(Task(0), 2, 100);
    AddWorker(Task(1), 2, 101);
  }

  template <typename Fill>
  Node* Add(const std::string& name, const std::string& op, const std::string& device, Fill fill) {
    NodeDef definition;
    definition.set_name(name);
    definition.set_op(op);
    definition.set_device(device);
    fill(&definition);
    const tensorflow::OpDef* op_def = nullptr;
    EXPECT_TRUE(library_.LookUpOpDef(op, &op_def).ok()) << op;
    tensorflow::AddDefaultsToNodeDef(*op_def, &definition);
    absl::StatusOr<Node*> node = graph_->AddNode(std::move(definition));
    EXPECT_TRUE(node.ok()) << node.status();
    return *node;
  }
  Node* Add(const std::string& name, const std::string& op, const std::string& device) {
    return Add(name, op, device, [](NodeDef*) {});
  }

  Node* Compile(const std::string& name, const std::string& device,
                const std::string& metadata = "") {
    return Add(name, "_TPUCompileMlir", device, [&](NodeDef* node) {
      AddNodeAttr("NumDynamicShapes", 0, node);
      AddNodeAttr("num_computations", 1, node);
      AddNodeAttr("mlir_module", "module", node);
      AddNodeAttr("metadata", metadata, node);
    });
  }

  Node* Execute(Node* compile, const std::string& device) {
    Node* execute =
        Add(absl::StrCat("execute on ", device), "TPUExecute", device, [](NodeDef* node) {
          AddNodeAttr("Targs", std::vector<DataType>{}, node);
          AddNodeAttr("Tresults", std::vector<DataType>{}, node);
        });
    graph_->AddEdge(compile, 1, execute, 0);
    return execute;
  }

  absl::Status RunPass() {
    tensorflow::FixupSourceAndSinkEdges(graph_.get());
    tensorflow::GraphOptimizationPassOptions options;
    options.graph = &graph_;
    options.flib_def = &library_;
    options.device_set = &device_set_;
    const auto& groups = OptimizationPassRegistry::Global()->groups();
    for (const auto& [phase, passes] : groups.at(OptimizationPassRegistry::PRE_PLACEMENT)) {
      for (const auto& pass : passes) {
        if (pass->name() == "FormPod") return pass->Run(options);
      }
    }
    return absl::NotFoundError("FormPod");
  }

  std::string GraphText() const {
    tensorflow::GraphDef definition;
    graph_->ToGraphDef(&definition);
    return definition.DebugString();
  }

  // The nodes of the same type, except this one.
  std::vector<Node*> Others(const Node* node) const {
    std::vector<Node*> others;
    for (Node* each : graph_->op_nodes()) {
      if (each != node && each->type_string() == node->type_string()) others.push_back(each);
    }
    std::sort(others.begin(), others.end(), [](const Node* a, const Node* b) {
      return a->requested_device() < b->requested_device();
    });
    return others;
  }

  // The nodes that start when this one has ended, and take no value from it.
  static std::set<const Node*> After(const Node* node) {
    std::set<const Node*> after;
    for (const Edge* edge : node->out_edges()) {
      if (edge->IsControlEdge() && !edge->dst()->IsSink()) after.insert(edge->dst());
    }
    return after;
  }

  static Host HostOf(const Node* node) {
    const absl::StatusOr<Pod> pod = PodOf(node->attrs());
    EXPECT_TRUE(pod.ok()) << pod.status();
    return pod.ok() ? pod->shape.host : Host(-1);
  }

  tensorflow::FunctionLibraryDefinition library_;
  std::unique_ptr<Graph> graph_;
  std::vector<std::unique_ptr<ClusterDevice>> devices_;
  tensorflow::DeviceSet device_set_;
};

TEST_F(FormPodTest, EachHostCompilesItsOwnProgram) {
  AddTwoWorkers();
  Node* compile = Compile("compile", OnTask(0, "CPU:0"));
  Node* first = Execute(compile, OnTask(0, "TPU:1"));
  Node* second = Execute(compile, OnTask(1, "TPU:0"));
  const absl::Status status = RunPass();
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<Node*> copies = Others(compile);
  ASSERT_EQ(copies.size(), 1u);
  const Node* copy = copies[0];
  EXPECT_EQ(copy->requested_device(), OnTask(1, "CPU:0"));
  EXPECT_NE(copy->attrs().Find(kCopyForHost), nullptr);
  EXPECT_EQ(compile->attrs().Find(kCopyForHost), nullptr);
  // A program starts when its own host has compiled it, and gets its key from the first host.
  EXPECT_EQ(After(copy), std::set<const Node*>{second});
  EXPECT_TRUE(After(compile).empty());
  for (const Node* execute : {first, second}) {
    const Node* key = nullptr;
    ASSERT_TRUE(execute->input_node(0, &key).ok());
    EXPECT_EQ(key, compile);
  }
  EXPECT_EQ(HostOf(compile), Host(0));
  EXPECT_EQ(HostOf(copy), Host(1));
}

TEST_F(FormPodTest, TheOpsKnowThePod) {
  AddWorker(Task(1), 2, 101);
  AddWorker(Task(0), 2, 100);
  AddWorker(Task(10), 2, 110);
  Node* compile = Compile("compile", OnTask(0, "CPU:0"));
  for (int task : {0, 1, 10}) Execute(compile, OnTask(task, "TPU:0"));
  ASSERT_TRUE(RunPass().ok());
  const std::vector<Node*> copies = Others(compile);
  ASSERT_EQ(copies.size(), 2u);
  const Node* const of_hosts[] = {compile, copies[0], copies[1]};
  const int tasks[] = {0, 1, 10};
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<Pod> pod = PodOf(of_hosts[i]->attrs());
    ASSERT_TRUE(pod.ok()) << pod.status();
    EXPECT_EQ(pod->shape.host, Host(i));
    EXPECT_EQ(pod->shape.hosts, 3);
    EXPECT_EQ(pod->shape.cores_per_host, 2);
    ASSERT_EQ(pod->members.size(), 3);
    for (int host = 0; host < 3; ++host) {
      EXPECT_EQ(pod->members[Host(host)].cpu, OnTask(tasks[host], "CPU:0"));
      EXPECT_EQ(pod->members[Host(host)].incarnation, 100u + tasks[host]);
    }
  }
}

TEST_F(FormPodTest, ACopyTakesWhatTheOpTakes) {
  AddTwoWorkers();
  Node* shape = Add("shape", "Placeholder", "",
                    [](NodeDef* node) { AddNodeAttr("dtype", tensorflow::DT_INT64, node); });
  Node* before = Add("before", "NoOp", "");
  Node* compile = Add("compile", "_TPUCompileMlir", OnTask(0, "CPU:0"), [](NodeDef* node) {
    AddNodeAttr("NumDynamicShapes", 1, node);
    AddNodeAttr("num_computations", 1, node);
    AddNodeAttr("mlir_module", "module", node);
    AddNodeAttr("metadata", "", node);
    AddNodeAttr(tensorflow::kColocationAttrName, std::vector<std::string>{"loc:@shape"}, node);
  });
  graph_->AddEdge(shape, 0, compile, 0);
  graph_->AddControlEdge(before, compile);
  Execute(compile, OnTask(1, "TPU:0"));
  ASSERT_TRUE(RunPass().ok());
  const std::vector<Node*> copies = Others(compile);
  ASSERT_EQ(copies.size(), 1u);
  const Node* input = nullptr;
  ASSERT_TRUE(copies[0]->input_node(0, &input).ok());
  EXPECT_EQ(input, shape);
  EXPECT_EQ(After(before), (std::set<const Node*>{compile, copies[0]}));
  EXPECT_EQ(copies[0]->attrs().Find("mlir_module")->s(), "module");
  // It is on a different host from what the op is colocated with.
  EXPECT_EQ(copies[0]->attrs().Find(tensorflow::kColocationAttrName), nullptr);
}

// Transfers on a host need that host's program; anything else that passes the key on needs all of
// them.
TEST_F(FormPodTest, UsersOfTheKeyWaitForTheProgramsOfTheirHosts) {
  AddTwoWorkers();
  Node* compile = Compile("compile", OnTask(0, "CPU:0"));
  Execute(compile, OnTask(0, "TPU:0"));
  Node* execute = Execute(compile, OnTask(1, "TPU:0"));
  const auto receive = [&](int task) {
    Node* node =
        Add(absl::StrCat("receive on ", task), "_XlaRecvAtHost", OnTask(task, "CPU:0"),
            [](NodeDef* definition) {
              AddNodeAttr("Toutputs", std::vector<DataType>{tensorflow::DT_FLOAT}, definition);
              AddNodeAttr("key", "channel", definition);
              AddNodeAttr("device_ordinal", 0, definition);
              AddNodeAttr("device_type", "TPU", definition);
            });
    graph_->AddEdge(compile, 1, node, 0);
    return node;
  };
  receive(0);
  const Node* received = receive(1);
  Node* handed_on = Add("handed on", "Identity", "",
                        [](NodeDef* node) { AddNodeAttr("T", tensorflow::DT_STRING, node); });
  graph_->AddEdge(compile, 1, handed_on, 0);
  // This checks how the compilation on the first host ended.
  Node* asserted = Add("asserted", "TPUCompileSucceededAssert", OnTask(0, "CPU:0"));
  graph_->AddEdge(compile, 0, asserted, 0);
  ASSERT_TRUE(RunPass().ok());
  const std::vector<Node*> copies = Others(compile);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(After(copies[0]), (std::set<const Node*>{execute, received, handed_on}));
}

// In a loop, the program is executed in a function of its own.
TEST_F(FormPodTest, WithoutExecuteOpsTheProgramSaysWhereItRuns) {
  AddTwoWorkers();
  tensorflow::tpu::TPUCompileMetadataProto metadata;
  metadata.set_num_replicas(4);
  metadata.set_num_cores_per_replica(1);
  auto* const devices = metadata.mutable_device_assignment()->add_computation_devices();
  for (int core = 0; core < 4; ++core) devices->add_replica_device_ids(core);
  Node* compile = Compile("compile", OnTask(0, "CPU:0"), metadata.SerializeAsString());
  devices->mutable_replica_device_ids()->Truncate(2);
  Node* on_first_host = Compile("on first host", OnTask(0, "CPU:0"), metadata.SerializeAsString());
  ASSERT_TRUE(RunPass().ok());
  const std::vector<Node*> others = Others(compile);
  ASSERT_EQ(others.size(), 2u);
  EXPECT_EQ(others[0], on_first_host);
  EXPECT_EQ(others[1]->requested_device(), OnTask(1, "CPU:0"));
  EXPECT_TRUE(absl::StrContains(others[1]->name(), "compile")) << others[1]->name();
}

TEST_F(FormPodTest, DamagedMetadataIsForTheKernelToReport) {
  AddTwoWorkers();
  const Node* damaged = Compile("damaged", OnTask(0, "CPU:0"), "\xff");
  ASSERT_TRUE(RunPass().ok());
  EXPECT_TRUE(Others(damaged).empty());
  EXPECT_TRUE(HasPod(damaged->attrs()));
}

TEST_F(FormPodTest, TheSystemStartsAndEndsOnEachHost) {
  AddTwoWorkers();
  for (const char* op : {"ConfigureDistributedTPU", "ShutdownDistributedTPU"}) {
    const Node* system = Add(op, op, OnTask(0, "TPU_SYSTEM:0"));
    ASSERT_TRUE(RunPass().ok());
    const std::vector<Node*> copies = Others(system);
    ASSERT_EQ(copies.size(), 1u) << op;
    EXPECT_EQ(copies[0]->requested_device(), OnTask(1, "TPU_SYSTEM:0"));
    // The first host answers once the other one is ready.
    EXPECT_EQ(After(copies[0]), std::set<const Node*>{system});
    // It has no inputs, and starts with the graph.
    ASSERT_EQ(copies[0]->in_edges().size(), 1u);
    EXPECT_TRUE((*copies[0]->in_edges().begin())->src()->IsSource());
    EXPECT_EQ(HostOf(system), Host(0));
    EXPECT_EQ(HostOf(copies[0]), Host(1));
  }
}

TEST_F(FormPodTest, EmbeddingsOfSeveralWorkersAreRefused) {
  AddTwoWorkers();
  Add("embedding", "ConfigureDistributedTPU", OnTask(0, "TPU_SYSTEM:0"),
      [](NodeDef* node) { tensorflow::AddNodeAttr("embedding_config", "tables", node); });
  const absl::Status status = RunPass();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "tf-tpu worker --cores=4")) << status;
}

TEST_F(FormPodTest, TransfersKnowTheHostOfTheirReplica) {
  AddTwoWorkers();
  Node* compile = Compile("compile", OnTask(0, "CPU:0"));
  Node* receive = Add("receive", "_XlaRecvAtHost", OnTask(1, "CPU:0"), [](NodeDef* node) {
    tensorflow::AddNodeAttr("Toutputs", std::vector<DataType>{tensorflow::DT_FLOAT}, node);
    tensorflow::AddNodeAttr("key", "channel", node);
    tensorflow::AddNodeAttr("device_ordinal", 0, node);
  });
  graph_->AddEdge(compile, 1, receive, 0);
  for (int pass = 0; pass < 2; ++pass) {
    ASSERT_TRUE(RunPass().ok());
    ASSERT_NE(receive->attrs().Find(kTransferTask), nullptr);
    EXPECT_EQ(receive->attrs().Find(kTransferTask)->i(), 1);
    // The placer's choice, on the host that runs the transfer, changes nothing.
    receive->set_requested_device(OnTask(0, "CPU:0"));
  }
}

TEST_F(FormPodTest, AnOpMayStandOnAnyHost) {
  AddTwoWorkers();
  const Node* system = Add("configure", "ConfigureDistributedTPU", OnTask(1, "TPU_SYSTEM:0"));
  ASSERT_TRUE(RunPass().ok());
  const std::vector<Node*> copies = Others(system);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0]->requested_device(), OnTask(0, "TPU_SYSTEM:0"));
  EXPECT_EQ(HostOf(system), Host(1));
  EXPECT_EQ(HostOf(copies[0]), Host(0));
}

TEST_F(FormPodTest, WithoutATaskItIsTheFirstHost) {
  AddTwoWorkers();
  const Node* system = Add("configure", "ConfigureDistributedTPU", "/device:TPU_SYSTEM:0");
  ASSERT_TRUE(RunPass().ok());
  const std::vector<Node*> copies = Others(system);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0]->requested_device(), OnTask(1, "TPU_SYSTEM:0"));
}

TEST_F(FormPodTest, AnotherPassChangesNothing) {
  AddTwoWorkers();
  Node* compile = Compile("compile", OnTask(0, "CPU:0"));
  Execute(compile, OnTask(0, "TPU:0"));
  Execute(compile, OnTask(1, "TPU:0"));
  Add("configure", "ConfigureDistributedTPU", OnTask(0, "TPU_SYSTEM:0"));
  ASSERT_TRUE(RunPass().ok());
  const std::string once = GraphText();
  ASSERT_TRUE(RunPass().ok());
  EXPECT_EQ(GraphText(), once);
}

// A host sees its own part of the graph, which has already been through the pass.
TEST_F(FormPodTest, APartOfAGraphStaysAsItIs) {
  AddTwoWorkers();
  Node* compile = Compile("compile", OnTask(1, "CPU:0"));
  Execute(compile, OnTask(1, "TPU:0"));
  Execute(compile, OnTask(0, "TPU:0"));
  ASSERT_TRUE(RunPass().ok());
  graph_->RemoveNode(Others(compile)[0]);
  const std::string part = GraphText();
  ASSERT_TRUE(RunPass().ok());
  EXPECT_EQ(GraphText(), part);
}

TEST_F(FormPodTest, WorkersNeedTheSameNumberOfCores) {
  AddWorker(Task(0), 2, 100);
  AddWorker(Task(1), 3, 101);
  Add("configure", "ConfigureDistributedTPU", OnTask(0, "TPU_SYSTEM:0"));
  const absl::Status status = RunPass();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  for (const char* part : {"2, 3", "tf-tpu worker --cores=2", "/job:worker/replica:0/task:0"}) {
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
  }
}

// Graphs that have nothing to do with TPUs must run whatever the workers are.
TEST_F(FormPodTest, UnlikeWorkersMatterOnlyToTpuOps) {
  AddWorker(Task(0), 2, 100);
  AddWorker(Task(1), 3, 101);
  Add("nothing", "NoOp", OnTask(1, "CPU:0"));
  const absl::Status status = RunPass();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(FormPodTest, ATaskThatIsNoWorkerIsAnError) {
  AddTwoWorkers();
  AddDevice(Task(2), tensorflow::DEVICE_CPU, 0);
  Compile("compile", OnTask(2, "CPU:0"));
  const absl::Status status = RunPass();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), OnTask(2, "CPU:0"))) << status;
}

TEST_F(FormPodTest, OneWorkerIsNoPod) {
  AddWorker(Task(0), 2, 100);
  // The client's own device, which nothing addresses by the worker's job.
  AddWorker(Task(0, "localhost"), 2, 5);
  // A worker without TPU cores.
  AddDevice(Task(1), tensorflow::DEVICE_CPU, 0);
  Node* compile = Compile("compile", OnTask(0, "CPU:0"));
  Execute(compile, OnTask(0, "TPU:0"));
  Add("configure", "ConfigureDistributedTPU", OnTask(0, "TPU_SYSTEM:0"));
  const std::string before = GraphText();
  ASSERT_TRUE(RunPass().ok());
  EXPECT_EQ(GraphText(), before);
}

// A client with cores of its own may use them without the pod.
TEST_F(FormPodTest, OtherJobsStayAsTheyAre) {
  AddTwoWorkers();
  AddWorker(Task(0, "localhost"), 2, 5);
  Node* compile = Compile("compile", Task(0, "localhost") + "/device:CPU:0");
  Execute(compile, Task(0, "localhost") + "/device:TPU:0");
  Add("configure", "ConfigureDistributedTPU", Task(0, "localhost") + "/device:TPU_SYSTEM:0");
  const std::string before = GraphText();
  ASSERT_TRUE(RunPass().ok());
  EXPECT_EQ(GraphText(), before);
}

TEST_F(FormPodTest, WithoutDevicesNothingIsKnownOfAPod) {
  Compile("compile", "");
  const std::string before = GraphText();
  ASSERT_TRUE(RunPass().ok());
  tensorflow::GraphOptimizationPassOptions options;
  for (const auto& pass :
       OptimizationPassRegistry::Global()->groups().at(OptimizationPassRegistry::PRE_PLACEMENT)) {
    for (const auto& each : pass.second) {
      if (each->name() == "FormPod") EXPECT_TRUE(each->Run(options).ok());
    }
  }
  EXPECT_EQ(GraphText(), before);
}

}  // namespace
}  // namespace tf_tpu_ext
