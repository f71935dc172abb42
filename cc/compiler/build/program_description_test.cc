#include "cc/compiler/build/program_description.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/base/tensor_testing.h"
#include "cc/compiler/lower/lower_module.h"
#include "cc/program/compiled_program.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/core/framework/types.pb.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"
#include "xla/service/computation_placer.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {
namespace {

using Metadata = tensorflow::tpu::TPUCompileMetadataProto;

Metadata Cores(int replicas, int cores_per_replica) {
  Metadata metadata;
  metadata.set_num_replicas(replicas);
  metadata.set_num_cores_per_replica(cores_per_replica);
  return metadata;
}

// Core c of replica r is 10 r + c.
void AssignByTens(Metadata* metadata) {
  xla::DeviceAssignment assignment(metadata->num_replicas(), metadata->num_cores_per_replica());
  for (int r = 0; r < metadata->num_replicas(); ++r) {
    for (int c = 0; c < metadata->num_cores_per_replica(); ++c) assignment(r, c) = 10 * r + c;
  }
  assignment.Serialize(metadata->mutable_device_assignment());
}

xla::OpSharding On(int core) {
  xla::OpSharding sharding;
  sharding.set_type(xla::OpSharding::MAXIMAL);
  sharding.add_tile_assignment_dimensions(1);
  sharding.add_tile_assignment_devices(core);
  return sharding;
}

xla::OpSharding OfType(xla::OpSharding::Type type) {
  xla::OpSharding sharding;
  sharding.set_type(type);
  return sharding;
}

TEST(AssignCoresTest, FollowsTheAssignmentOfTheProgram) {
  Metadata metadata = Cores(2, 3);
  AssignByTens(&metadata);
  EXPECT_EQ(AssignCores(metadata)->values(), (ToNumbers<Core>({0, 1, 2, 10, 11, 12})));
}

TEST(AssignCoresTest, WithoutOneTakesTheFirstCores) {
  EXPECT_EQ(AssignCores(Cores(2, 2))->values(), (ToNumbers<Core>({0, 1, 2, 3})));
}

TEST(AssignCoresTest, AProgramOfOneCoreMayRunAnywhere) {
  EXPECT_TRUE(AssignCores(Cores(1, 1))->empty());
  EXPECT_TRUE(AssignCores(Metadata())->empty());
  // Unless the program says where it runs.
  Metadata metadata = Cores(1, 1);
  AssignByTens(&metadata);
  EXPECT_EQ(AssignCores(metadata)->values(), ToNumbers<Core>({0}));
}

TEST(AssignCoresTest, AnAssignmentThatContradictsItselfIsAnError) {
  Metadata metadata = Cores(2, 1);
  AssignByTens(&metadata);
  metadata.mutable_device_assignment()->set_computation_count(5);
  EXPECT_FALSE(AssignCores(metadata).ok());
}

TEST(AssignCoresTest, AnAssignmentOfAnotherProgramIsAnError) {
  Metadata metadata = Cores(2, 3);
  AssignByTens(&metadata);
  for (const auto& [replicas, cores] : {std::pair(3, 3), {1, 3}, {2, 4}, {3, 2}}) {
    metadata.set_num_replicas(replicas);
    metadata.set_num_cores_per_replica(cores);
    EXPECT_EQ(AssignCores(metadata).status().message(),
              absl::StrCat("The device assignment is for 2 replicas of 3 cores; the program has ",
                           replicas, " of ", cores, ". The graph is damaged."));
  }
}

TEST(ToDeviceAssignmentTest, IsByReplicaAndPartition) {
  const ByNumber<Slot, Core> cores(ToNumbers<Core>({4, 5, 6, 7, 8, 9}));
  const auto spmd = ToDeviceAssignment(cores, /*replicas=*/3, /*partitions=*/2);
  ASSERT_NE(spmd, nullptr);
  EXPECT_EQ(spmd->replica_count(), 3);
  EXPECT_EQ(spmd->computation_count(), 2);
  EXPECT_EQ((*spmd)(1, 0), 6);
  EXPECT_EQ((*spmd)(2, 1), 9);
  // Cores that run as one are represented by the first core of each replica.
  const auto merged = ToDeviceAssignment(cores, /*replicas=*/3, /*partitions=*/1);
  EXPECT_EQ(merged->computation_count(), 1);
  EXPECT_EQ((*merged)(1, 0), 6);
  EXPECT_EQ(ToDeviceAssignment({}, 1, 1), nullptr);
}

TEST(NumPartitionsTest, OnlySpmdSplitsOps) {
  Metadata metadata = Cores(2, 4);
  EXPECT_EQ(NumPartitions(metadata), 1);
  metadata.set_use_spmd_for_xla_partitioning(true);
  EXPECT_EQ(NumPartitions(metadata), 4);
  EXPECT_EQ(NumPartitions(Cores(2, 1)), 1);
}

TEST(DescribeProgramTest, NamesTheOutputsOfFunctionAndVariables) {
  LoweredModule lowered;
  auto& outputs = lowered.result.outputs;
  outputs.resize(3);
  outputs[0].type = tensorflow::DT_INT32;
  outputs[0].is_constant = true;
  outputs[0].constant_value = MakeVector<int32_t>({4, 2});
  outputs[1].type = tensorflow::DT_FLOAT;
  outputs[1].is_constant = false;
  outputs[2].type = tensorflow::DT_RESOURCE;
  outputs[2].is_constant = false;
  lowered.result.resource_updates.resize(1);
  lowered.result.resource_updates[0].type = tensorflow::DT_BFLOAT16;
  lowered.result.input_mapping = {2, 0};
  lowered.has_host_transfers = true;
  lowered.takes.infeed = true;
  lowered.host_functions.push_back({"f", "library", "source"});
  const auto program = DescribeProgram(lowered, Cores(2, 1));
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_EQ(program->outputs.size(), 4);
  EXPECT_EQ(ValuesOf<int32_t>(*program->outputs[OutputNumber(0)].constant),
            (std::vector<int32_t>{4, 2}));
  EXPECT_EQ(program->outputs[OutputNumber(1)].constant, nullptr);
  EXPECT_EQ(program->outputs[OutputNumber(1)].dtype, tensorflow::DT_FLOAT);
  EXPECT_NE(program->outputs[OutputNumber(2)].constant, nullptr);
  EXPECT_EQ(program->outputs[OutputNumber(3)].constant, nullptr);
  EXPECT_EQ(program->outputs[OutputNumber(3)].dtype, tensorflow::DT_BFLOAT16);
  EXPECT_EQ(program->parameter_arguments.values(), (ToNumbers<ArgumentNumber>({2, 0})));
  EXPECT_EQ(program->num_slots(), 2);
  EXPECT_EQ(program->cores.values(), (ToNumbers<Core>({0, 1})));
  EXPECT_TRUE(program->has_host_transfers);
  EXPECT_TRUE(program->waits);
  EXPECT_TRUE(program->takes.infeed);
  ASSERT_EQ(program->host_functions.size(), 1u);
  EXPECT_TRUE(program->core_slices.empty());
}

TEST(DescribeProgramTest, PlacedArgumentsAndResultsBelongToTheirCores) {
  Metadata metadata = Cores(1, 2);
  *metadata.add_args()->mutable_sharding() = On(1);
  *metadata.add_args()->mutable_sharding() = OfType(xla::OpSharding::REPLICATED);
  *metadata.add_args()->mutable_sharding() = On(0);
  *metadata.add_retvals()->mutable_sharding() = On(1);
  *metadata.add_retvals()->mutable_sharding() = On(0);
  const auto program = DescribeProgram(LoweredModule(), metadata);
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_EQ(program->core_slices.size(), 2);
  EXPECT_EQ(program->core_slices[LogicalCore(0)].arguments.values(),
            ToNumbers<ArgumentNumber>({1, 2}));
  EXPECT_EQ(program->core_slices[LogicalCore(1)].arguments.values(),
            ToNumbers<ArgumentNumber>({0, 1}));
  EXPECT_EQ(program->core_slices[LogicalCore(0)].outputs.values(), ToNumbers<OutputNumber>({1}));
  EXPECT_EQ(program->core_slices[LogicalCore(1)].outputs.values(), ToNumbers<OutputNumber>({0}));
  // XLA, not the host, divides the values of an SPMD program.
  metadata.set_use_spmd_for_xla_partitioning(true);
  EXPECT_TRUE(DescribeProgram(LoweredModule(), metadata)->core_slices.empty());
}

TEST(DescribeProgramTest, APlaceThatIsNoCoreIsAnError) {
  for (const int core : {-1, 2}) {
    Metadata metadata = Cores(1, 2);
    *metadata.add_args()->mutable_sharding() = On(0);
    *metadata.add_retvals()->mutable_sharding() = On(core);
    const absl::Status status = DescribeProgram(LoweredModule(), metadata).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << core;
    EXPECT_TRUE(absl::StrContains(status.message(), "Result 0 is assigned to logical core"))
        << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "the replica has 2 cores")) << status;
  }
}

TEST(DescribeProgramTest, ASplitBesidePlacesIsAnError) {
  Metadata metadata = Cores(1, 2);
  *metadata.add_args()->mutable_sharding() = On(0);
  *metadata.add_args()->mutable_sharding() = OfType(xla::OpSharding::OTHER);
  const absl::Status status = DescribeProgram(LoweredModule(), metadata).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "Argument 1 is split over cores")) << status;
}

}  // namespace
}  // namespace tf_tpu_ext
