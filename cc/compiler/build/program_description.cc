#include "cc/compiler/build/program_description.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "llvm/ADT/StringRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.pb.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {
namespace {

using Metadata = tensorflow::tpu::TPUCompileMetadataProto;

// Which arguments and results belong to core `core` of a replica whose ops are placed one by one.
template <typename Described>
absl::Status AddToSlices(const Described& described, int number, const char* what,
                         std::vector<int> CompiledProgram::CoreSlice::* list,
                         std::vector<CompiledProgram::CoreSlice>* slices) {
  const xla::OpSharding& sharding = described.sharding();
  switch (sharding.type()) {
    case xla::OpSharding::MAXIMAL: {
      const int64_t core = sharding.tile_assignment_devices(0);
      if (core < 0 || core >= static_cast<int64_t>(slices->size())) {
        return absl::InvalidArgumentError(absl::StrCat(
            what, " ", number, " is assigned to logical core ", core, "; the replica has ",
            slices->size(), " cores. Give tpu.core() a number below that."));
      }
      ((*slices)[core].*list).push_back(number);
      return absl::OkStatus();
    }
    case xla::OpSharding::REPLICATED:
      for (CompiledProgram::CoreSlice& slice : *slices) (slice.*list).push_back(number);
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          what, " ", number, " is split over cores (", sharding.ShortDebugString(),
          ") while other ops are placed on single cores. Use XLAOptions("
          "use_spmd_for_xla_partitioning=True) without tpu.core(), or tpu.core() without splits."));
  }
}

absl::StatusOr<std::vector<CompiledProgram::CoreSlice>> SliceByCore(const Metadata& metadata) {
  std::vector<CompiledProgram::CoreSlice> slices(metadata.num_cores_per_replica());
  for (int i = 0; i < metadata.args_size(); ++i) {
    absl::Status status = AddToSlices(metadata.args(i), i, "Argument",
                                      &CompiledProgram::CoreSlice::arguments, &slices);
    if (!status.ok()) return status;
  }
  for (int i = 0; i < metadata.retvals_size(); ++i) {
    absl::Status status = AddToSlices(metadata.retvals(i), i, "Result",
                                      &CompiledProgram::CoreSlice::outputs, &slices);
    if (!status.ok()) return status;
  }
  return slices;
}

// First what the function returns, then the new values of its variables.
std::vector<CompiledProgram::Output> DescribeOutputs(
    const tensorflow::XlaCompilationResult& result) {
  std::vector<CompiledProgram::Output> outputs;
  for (const tensorflow::XlaOutputDescription& output : result.outputs) {
    CompiledProgram::Output& described = outputs.emplace_back();
    described.dtype = output.type;
    if (output.is_constant) {
      described.constant = std::make_shared<tensorflow::Tensor>(output.constant_value);
    } else if (output.type == tensorflow::DT_RESOURCE) {
      // The caller knows the handle: it is one of the arguments.
      described.constant = std::make_shared<tensorflow::Tensor>();
    }
  }
  for (const tensorflow::XlaResourceUpdate& update : result.resource_updates) {
    outputs.emplace_back().dtype = update.type;
  }
  return outputs;
}

}  // namespace

absl::StatusOr<std::vector<int>> AssignCores(const Metadata& metadata) {
  const int replicas = std::max(1, metadata.num_replicas());
  const int cores_per_replica = std::max(1, metadata.num_cores_per_replica());
  std::vector<int> cores;
  if (metadata.has_device_assignment()) {
    auto given = xla::DeviceAssignment::Deserialize(metadata.device_assignment());
    if (!given.ok()) return given.status();
    for (int replica = 0; replica < replicas; ++replica) {
      for (int core = 0; core < cores_per_replica; ++core) {
        cores.push_back((**given)(replica, core));
      }
    }
  } else if (replicas * cores_per_replica > 1) {
    for (int slot = 0; slot < replicas * cores_per_replica; ++slot) cores.push_back(slot);
  }
  return cores;
}

std::shared_ptr<const xla::DeviceAssignment> ToDeviceAssignment(const std::vector<int>& cores,
                                                                int replicas, int partitions) {
  if (cores.empty()) return nullptr;
  auto assignment = std::make_shared<xla::DeviceAssignment>(replicas, partitions);
  const int cores_per_replica = cores.size() / replicas;
  for (int replica = 0; replica < replicas; ++replica) {
    for (int partition = 0; partition < partitions; ++partition) {
      (*assignment)(replica, partition) = cores[replica * cores_per_replica + partition];
    }
  }
  return assignment;
}

int NumPartitions(const Metadata& metadata) {
  return PartitioningOf(metadata) == Partitioning::kSpmd ? metadata.num_cores_per_replica() : 1;
}

absl::StatusOr<CompiledProgram> DescribeProgram(const LoweredModule& lowered,
                                                const Metadata& metadata) {
  CompiledProgram program;
  program.num_replicas = std::max(1, metadata.num_replicas());
  program.num_cores_per_replica = std::max(1, metadata.num_cores_per_replica());
  TF_ASSIGN_OR_RETURN(program.cores, AssignCores(metadata));
  program.device_assignment =
      ToDeviceAssignment(program.cores, program.num_replicas, NumPartitions(metadata));
  if (PartitioningOf(metadata) == Partitioning::kMerged) {
    TF_ASSIGN_OR_RETURN(program.core_slices, SliceByCore(metadata));
  }
  program.takes = lowered.takes;
  program.host_functions = lowered.host_functions;
  program.waits = lowered.has_host_transfers;
  program.parameter_arguments = lowered.result.input_mapping;
  program.outputs = DescribeOutputs(lowered.result);
  return program;
}

}  // namespace tf_tpu_ext
