#include "cc/compiler/xla_build.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/compiler/collective_order.h"
#include "cc/compiler/static_results.h"
#include "cc/device/machine.h"
#include "cc/runtime/kernel_call.h"
#include "cc/transfer/host_functions.h"
#include "llvm/ADT/StringRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "xla/pjrt/cpu/cpu_client.h"
#include "xla/pjrt/plugin/xla_cpu/xla_cpu_pjrt_client.h"
#include "xla/service/computation_placer.h"

namespace tf_tpu_ext {
namespace {

using Metadata = tensorflow::tpu::TPUCompileMetadataProto;

// The client only compiles: programs are run by cc/runtime, which needs none of its buffers, pools
// and waits.
absl::StatusOr<xla::PjRtClient*> CompileClient() {
  static auto* client = new absl::StatusOr<std::unique_ptr<xla::PjRtClient>>([] {
    xla::CpuClientOptions options;
    options.cpu_device_count = GetMachineOptions().cores;
    return xla::GetXlaPjrtCpuClient(std::move(options));
  }());
  if (!client->ok()) return client->status();
  return (*client)->get();
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

xla::CompileOptions MakeCompileOptions(const LoweredModule& lowered, const Metadata& metadata,
                                       int partitions,
                                       const xla::DeviceAssignment* device_assignment) {
  xla::CompileOptions options;
  xla::ExecutableBuildOptions& build = options.executable_build_options;
  build.set_num_replicas(std::max(1, metadata.num_replicas()));
  build.set_num_partitions(partitions);
  build.set_use_spmd_partitioning(partitions > 1);
  if (device_assignment != nullptr) {
    build.set_device_assignment(*device_assignment);
  } else {
    options.compile_portable_executable = true;
  }
  if (lowered.has_host_transfers) {
    // Knowing a loop's trip count, XLA:CPU would no longer run its condition, nor the transfers in
    // it.
    for (const char* pass :
         {"while-loop-trip-count-annotator", "while_loop_trip_count_annotator"}) {
      build.mutable_debug_options()->add_xla_disable_hlo_passes(pass);
    }
  }
  return options;
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

int64_t CountKernelCalls(const xla::XlaComputation& computation) {
  int64_t calls = 0;
  for (const auto& part : computation.proto().computations()) {
    for (const auto& instruction : part.instructions()) {
      calls += instruction.custom_call_target() == kKernelTarget ? 1 : 0;
    }
  }
  return calls;
}

absl::StatusOr<std::shared_ptr<Program>> BuildProgram(const LoweredModule& lowered,
                                                      const Metadata& metadata,
                                                      const std::string& name, int64_t id) {
  const Partitioning partitioning = PartitioningOf(metadata);
  const int partitions = partitioning == Partitioning::kSpmd ? metadata.num_cores_per_replica() : 1;
  CompiledProgram compiled;
  compiled.name = name;
  compiled.id = id;
  compiled.num_replicas = std::max(1, metadata.num_replicas());
  compiled.num_cores_per_replica = std::max(1, metadata.num_cores_per_replica());
  auto cores = AssignCores(metadata);
  if (!cores.ok()) return cores.status();
  compiled.cores = *std::move(cores);
  compiled.takes_infeed = lowered.takes_infeed;
  if (!lowered.host_functions.empty()) {
    auto functions = HostFunctions::Create(lowered.host_functions,
                                           compiled.num_replicas * compiled.num_cores_per_replica);
    if (!functions.ok()) return functions.status();
    compiled.host_functions = *std::move(functions);
  }
  compiled.device_assignment =
      ToDeviceAssignment(compiled.cores, compiled.num_replicas, partitions);
  if (partitioning == Partitioning::kMerged) {
    auto slices = SliceByCore(metadata);
    if (!slices.ok()) return slices.status();
    compiled.core_slices = *std::move(slices);
  }
  for (const tensorflow::XlaOutputDescription& output : lowered.result.outputs) {
    CompiledProgram::Output described;
    described.dtype = output.type;
    if (output.is_constant) {
      described.constant = std::make_shared<tensorflow::Tensor>(output.constant_value);
    } else if (output.type == tensorflow::DT_RESOURCE) {
      // The caller knows the handle: it is one of the arguments.
      described.constant = std::make_shared<tensorflow::Tensor>();
    }
    compiled.outputs.push_back(std::move(described));
  }
  for (const tensorflow::XlaResourceUpdate& update : lowered.result.resource_updates) {
    CompiledProgram::Output described;
    described.dtype = update.type;
    compiled.outputs.push_back(std::move(described));
  }
  compiled.parameter_arguments = lowered.result.input_mapping;
  auto results = MakeResultsStatic(*lowered.result.computation);
  if (!results.ok()) return results.status();
  size_t result = 0;
  for (CompiledProgram::Output& output : compiled.outputs) {
    if (output.constant != nullptr) continue;
    if (result < results->dynamic_sizes.size()) {
      output.dynamic_sizes = results->dynamic_sizes[result];
    }
    ++result;
  }

  if (lowered.for_one_replica) OrderCollectives(results->computation.mutable_proto());
  auto client = CompileClient();
  if (!client.ok()) return client.status();
  auto executable = (*client)->Compile(
      results->computation,
      MakeCompileOptions(lowered, metadata, partitions, compiled.device_assignment.get()));
  if (!executable.ok()) return executable.status();
  compiled.executable = static_cast<xla::PjRtCpuExecutable*>(executable->get())->cpu_executable();
  return Program::Create(std::move(compiled));
}

}  // namespace tf_tpu_ext
