#include "cc/compiler/build/program_description.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc/program/value_numbers.h"
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

using CoreSlice = CompiledProgram::CoreSlice;

// Adds an argument or output to the slices of the cores that it belongs to, in a replica whose ops
// are placed on single cores.
template <typename N, typename Described>
absl::Status AddToSlices(const Described& described, N number, const char* what,
                         ByNumber<N, N> CoreSlice::* list,
                         ByNumber<LogicalCore, CoreSlice>* slices) {
  const xla::OpSharding& sharding = described.sharding();
  switch (sharding.type()) {
    case xla::OpSharding::MAXIMAL: {
      const int64_t core = sharding.tile_assignment_devices(0);
      if (core < 0 || core >= slices->size()) {
        return absl::InvalidArgumentError(absl::StrCat(
            what, " ", number, " is assigned to logical core ", core, "; the replica has ",
            slices->size(), " cores. Give tpu.core() a number below that."));
      }
      ((*slices)[LogicalCore(static_cast<int>(core))].*list).Add(number);
      return absl::OkStatus();
    }
    case xla::OpSharding::REPLICATED:
      for (CoreSlice& slice : *slices) (slice.*list).Add(number);
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          what, " ", number, " is split over cores (", sharding.ShortDebugString(),
          ") while other ops are placed on single cores. Use XLAOptions("
          "use_spmd_for_xla_partitioning=True) without tpu.core(), or tpu.core() without splits."));
  }
}

absl::StatusOr<ByNumber<LogicalCore, CoreSlice>> SliceByCore(const Metadata& metadata) {
  ByNumber<LogicalCore, CoreSlice> slices(metadata.num_cores_per_replica());
  for (ArgumentNumber argument : NumbersBelow<ArgumentNumber>(metadata.args_size())) {
    TF_RETURN_IF_ERROR(AddToSlices(metadata.args(argument.value()), argument, "Argument",
                                   &CoreSlice::arguments, &slices));
  }
  for (OutputNumber output : NumbersBelow<OutputNumber>(metadata.retvals_size())) {
    TF_RETURN_IF_ERROR(AddToSlices(metadata.retvals(output.value()), output, "Result",
                                   &CoreSlice::outputs, &slices));
  }
  return slices;
}

// The function's results first, then the new values of its variables.
ByNumber<OutputNumber, CompiledProgram::Output> DescribeOutputs(
    const tensorflow::XlaCompilationResult& result) {
  ByNumber<OutputNumber, CompiledProgram::Output> outputs;
  for (const tensorflow::XlaOutputDescription& output : result.outputs) {
    CompiledProgram::Output described;
    described.dtype = output.type;
    if (output.is_constant) {
      described.constant = std::make_shared<tensorflow::Tensor>(output.constant_value);
    } else if (output.type == tensorflow::DT_RESOURCE) {
      // The caller knows the handle, because it is one of the arguments.
      described.constant = std::make_shared<tensorflow::Tensor>();
    }
    outputs.Add(std::move(described));
  }
  for (const tensorflow::XlaResourceUpdate& update : result.resource_updates) {
    CompiledProgram::Output described;
    described.dtype = update.type;
    outputs.Add(std::move(described));
  }
  return outputs;
}

}  // namespace

absl::StatusOr<ByNumber<Slot, Core>> AssignCores(const Metadata& metadata) {
  const int replicas = std::max(1, metadata.num_replicas());
  const int cores_per_replica = std::max(1, metadata.num_cores_per_replica());
  ByNumber<Slot, Core> cores;
  if (metadata.has_device_assignment()) {
    TF_ASSIGN_OR_RETURN(const std::unique_ptr<xla::DeviceAssignment> given,
                        xla::DeviceAssignment::Deserialize(metadata.device_assignment()));
    if (given->replica_count() != replicas || given->computation_count() != cores_per_replica) {
      return absl::InvalidArgumentError(
          absl::StrCat("The device assignment is for ", given->replica_count(), " replicas of ",
                       given->computation_count(), " cores; the program has ", replicas, " of ",
                       cores_per_replica, ". The graph is damaged."));
    }
    for (int replica = 0; replica < replicas; ++replica) {
      for (int core = 0; core < cores_per_replica; ++core) {
        cores.Add(Core(static_cast<int>((*given)(replica, core))));
      }
    }
  } else if (replicas * cores_per_replica > 1) {
    for (int slot = 0; slot < replicas * cores_per_replica; ++slot) cores.Add(Core(slot));
  }
  return cores;
}

absl::StatusOr<ByNumber<Slot, Core>> CoresHere(const Metadata& metadata, const PodShape& pod) {
  TF_ASSIGN_OR_RETURN(const auto all, AssignCores(metadata));
  const int cores_per_replica = std::max(1, metadata.num_cores_per_replica());
  ByNumber<Slot, Core> here;
  for (Slot slot : all.numbers()) {
    const Slot first(slot.value() / cores_per_replica * cores_per_replica);
    const Host host = pod.HostOf(all[slot]);
    if (host != pod.HostOf(all[first])) {
      return absl::UnimplementedError(absl::StrCat(
          "Replica ", slot.value() / cores_per_replica, " has core ", all[first], " on host ",
          pod.HostOf(all[first]), " and core ", all[slot], " on host ", host,
          ". The cores of one replica must be on one host: a host has ", pod.cores_per_host,
          ". Use a device assignment whose replicas don't cross hosts, or workers with more "
          "cores."));
    }
    if (host == pod.host) here.Add(pod.NumberHere(all[slot]));
  }
  return here;
}

std::shared_ptr<const xla::DeviceAssignment> ToDeviceAssignment(const ByNumber<Slot, Core>& cores,
                                                                int replicas, int partitions) {
  if (cores.empty()) return nullptr;
  auto assignment = std::make_shared<xla::DeviceAssignment>(replicas, partitions);
  const int cores_per_replica = cores.size() / replicas;
  for (int replica = 0; replica < replicas; ++replica) {
    for (int partition = 0; partition < partitions; ++partition) {
      (*assignment)(replica, partition) =
          cores[Slot(replica * cores_per_replica + partition)].value();
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
  program.num_cores_per_replica = std::max(1, metadata.num_cores_per_replica());
  TF_ASSIGN_OR_RETURN(const auto all_cores, AssignCores(metadata));
  TF_ASSIGN_OR_RETURN(program.cores, CoresHere(metadata, lowered.pod));
  program.num_replicas = std::max(1, program.cores.size() / program.num_cores_per_replica);
  program.device_assignment =
      ToDeviceAssignment(all_cores, std::max(1, metadata.num_replicas()), NumPartitions(metadata));
  if (lowered.pod.is_pod()) {
    program.pod = lowered.pod;
    for (Core core : all_cores) program.hosts.insert(lowered.pod.HostOf(core));
  }
  if (PartitioningOf(metadata) == Partitioning::kMerged) {
    TF_ASSIGN_OR_RETURN(program.core_slices, SliceByCore(metadata));
  }
  program.takes = lowered.takes;
  program.host_functions = lowered.host_functions;
  program.has_host_transfers = lowered.has_host_transfers;
  program.waits = lowered.has_host_transfers;
  program.parameter_arguments = ByNumber<ParameterNumber, ArgumentNumber>(
      ToNumbers<ArgumentNumber>(lowered.result.input_mapping));
  program.outputs = DescribeOutputs(lowered.result);
  return program;
}

}  // namespace tf_tpu_ext
