#include "cc/kernels/core_placement.h"

#include <string>
#include <vector>

#include "cc/base/machine.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/protobuf/tpu/topology.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::NodeDef;

class CorePlacementTest : public ::testing::Test {
 protected:
  CorePlacementTest()
      : library_(tensorflow::OpRegistry::Global(), tensorflow::FunctionDefLibrary()) {}

  // Defines a function that holds one computation.
  void Define(const std::string& name, int replicas, int cores_per_replica) {
    FunctionDef function;
    function.mutable_signature()->set_name(name);
    NodeDef* node = function.add_node_def();
    node->set_name("metadata");
    node->set_op("TPUReplicateMetadata");
    (*node->mutable_attr())["num_replicas"].set_i(replicas);
    (*node->mutable_attr())["num_cores_per_replica"].set_i(cores_per_replica);
    // An older placement.
    (*node->mutable_attr())["topology"].set_s("old");
    (*node->mutable_attr())["device_assignment"].mutable_list()->add_i(99);
    ASSERT_TRUE(library_.AddFunctionDef(function).ok());
  }

  const NodeDef& Metadata(const std::string& function) const {
    return library_.Find(function)->node_def(0);
  }

  std::vector<int> Assignment(const std::string& function) const {
    const auto& list = Metadata(function).attr().at("device_assignment").list().i();
    return std::vector<int>(list.begin(), list.end());
  }

  FunctionLibraryDefinition library_;
};

TEST_F(CorePlacementTest, PlacesEveryComputation) {
  Define("f", 1, 1);
  Define("g", 1, 1);
  for (int core = 0; core < 8; ++core) {
    ASSERT_TRUE(PlaceOnCore(core, MeshShape(8), &library_).ok());
    const std::array<int, 4> coordinates = CoreCoordinates(MeshShape(8))[core];
    for (const char* name : {"f", "g"}) {
      EXPECT_EQ(Assignment(name), std::vector<int>(coordinates.begin(), coordinates.end()));
      tensorflow::tpu::TopologyProto topology;
      ASSERT_TRUE(topology.ParseFromString(Metadata(name).attr().at("topology").s()));
      EXPECT_EQ(topology.device_coordinates_size(), 8 * 4);
    }
  }
}

TEST_F(CorePlacementTest, ReplicaOfTwoCoresTakesTheChip) {
  Define("f", 1, 2);
  for (int core : {2, 3}) {
    ASSERT_TRUE(PlaceOnCore(core, MeshShape(8), &library_).ok());
    EXPECT_EQ(Assignment("f"), (std::vector<int>{1, 0, 0, 0, 1, 0, 0, 1}));
  }
}

TEST_F(CorePlacementTest, OtherFunctionsStay) {
  FunctionDef function;
  function.mutable_signature()->set_name("f");
  function.add_node_def()->set_op("NoOp");
  ASSERT_TRUE(library_.AddFunctionDef(function).ok());
  ASSERT_TRUE(PlaceOnCore(1, MeshShape(2), &library_).ok());
  EXPECT_EQ(library_.Find("f")->SerializeAsString(), function.SerializeAsString());
}

TEST_F(CorePlacementTest, CoreThatDoesNotExist) {
  for (int core : {-1, 8, 100}) {
    const absl::Status status = PlaceOnCore(core, MeshShape(8), &library_);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("the cores 0 to 7"), std::string::npos) << status;
  }
}

TEST_F(CorePlacementTest, ReplicaThatDoesNotFit) {
  Define("f", 1, 2);
  const absl::Status status = PlaceOnCore(2, MeshShape(3), &library_);
  EXPECT_NE(status.message().find("the cores 2 to 3"), std::string::npos) << status;
}

TEST_F(CorePlacementTest, SeveralReplicas) {
  Define("f", 2, 1);
  const absl::Status status = PlaceOnCore(0, MeshShape(8), &library_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'metadata' has 2"), std::string::npos) << status;
}

}  // namespace
}  // namespace tf_tpu_ext
