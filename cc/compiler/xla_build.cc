#include "cc/compiler/xla_build.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "cc/compiler/collective_order.h"
#include "cc/compiler/padded_arguments.h"
#include "cc/compiler/split_update.h"
#include "cc/compiler/static_results.h"
#include "cc/device/machine.h"
#include "cc/runtime/kernel_call.h"
#include "cc/transfer/host_functions.h"
#include "llvm/ADT/StringRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
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

bool HasDynamicSizes(const StaticResults& results) {
  return absl::c_any_of(results.dynamic_sizes, [](const auto& sizes) { return !sizes.empty(); });
}

absl::StatusOr<std::shared_ptr<xla::Executable>> Compile(xla::PjRtClient* client,
                                                         const xla::XlaComputation& computation,
                                                         xla::CompileOptions options) {
  auto executable = client->Compile(computation, std::move(options));
  if (!executable.ok()) return executable.status();
  return static_cast<xla::PjRtCpuExecutable*>(executable->get())->cpu_executable();
}

// The parameters that are variables with new values, or that the bridge knows to be alike.
std::vector<int> MirroredParameters(const LoweredModule& lowered, const Metadata& metadata,
                                    const CompiledProgram& compiled) {
  std::vector<int> mirrored;
  for (size_t parameter = 0; parameter < compiled.parameter_arguments.size(); ++parameter) {
    const int argument = compiled.parameter_arguments[parameter];
    const bool updated = absl::c_any_of(lowered.updated_arguments,
                                        [&](const auto& pair) { return pair.first == argument; });
    if (updated || metadata.args(argument).is_same_data_across_replicas()) {
      mirrored.push_back(parameter);
    }
  }
  return mirrored;
}

// Lets the update write the new values of variables over the old ones.
std::vector<std::pair<int, int>> AliasVariables(const LoweredModule& lowered,
                                                const SharedUpdate& update,
                                                const CompiledProgram& compiled,
                                                xla::HloModuleProto* module) {
  std::vector<std::pair<int, int>> updated;
  for (const auto& [argument, step_output] : lowered.updated_arguments) {
    const auto output = absl::c_find(update.update_outputs, step_output);
    const auto parameter = absl::c_find(compiled.parameter_arguments, argument);
    if (output == update.update_outputs.end() || parameter == compiled.parameter_arguments.end()) {
      continue;
    }
    const int result = output - update.update_outputs.begin();
    auto* entry = module->mutable_input_output_alias()->add_entries();
    entry->add_output_shape_index(result);
    entry->set_parameter_number(parameter - compiled.parameter_arguments.begin());
    entry->set_kind(xla::MAY_ALIAS);
    updated.emplace_back(argument, result);
  }
  return updated;
}

// Builds the update, and leaves the rest of the outputs in `compiled`.
absl::StatusOr<std::shared_ptr<const SharedUpdate>> BuildSharedUpdate(xla::PjRtClient* client,
                                                                      const LoweredModule& lowered,
                                                                      const SplitProgram& split,
                                                                      int num_arguments,
                                                                      CompiledProgram* compiled) {
  std::vector<int> output_of_result;
  std::vector<CompiledProgram::Output> outputs = std::move(compiled->outputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].constant == nullptr) output_of_result.push_back(i);
  }
  auto update = std::make_shared<SharedUpdate>();
  CompiledProgram program;
  program.name = absl::StrCat(compiled->name, " (shared update)");
  program.id = compiled->id;
  program.waits = false;
  for (int result : split.update_results) {
    update->update_outputs.push_back(output_of_result[result]);
    program.outputs.push_back(outputs[output_of_result[result]]);
  }
  compiled->outputs.clear();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (absl::c_linear_search(update->update_outputs, i)) continue;
    update->replica_outputs.push_back(i);
    compiled->outputs.push_back(outputs[i]);
  }
  update->combinations = split.combinations;
  update->num_arguments = num_arguments;
  program.parameter_arguments = compiled->parameter_arguments;
  for (size_t i = 0; i < split.combinations.size(); ++i) {
    CompiledProgram::Output combined;
    auto dtype = tensorflow::EncodePrimitiveTypeAsDataType(split.combinations[i].type);
    if (!dtype.ok()) return dtype.status();
    combined.dtype = *dtype;
    compiled->outputs.push_back(std::move(combined));
    program.parameter_arguments.push_back(num_arguments + i);
  }
  compiled->num_combined_outputs = split.combinations.size();
  for (int parameter : split.update_parameters) {
    update->read_arguments.push_back(compiled->parameter_arguments[parameter]);
  }
  xla::HloModuleProto module = split.update;
  update->updated_variables = AliasVariables(lowered, *update, *compiled, &module);
  xla::CompileOptions options;
  options.compile_portable_executable = true;
  auto executable = Compile(client, xla::XlaComputation(std::move(module)), std::move(options));
  if (!executable.ok()) return executable.status();
  program.executable = *std::move(executable);
  auto created = Program::Create(std::move(program));
  if (!created.ok()) return created.status();
  update->program = *std::move(created);
  return update;
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
  compiled.padded_arguments =
      PaddedArguments(lowered.result.computation->proto(), compiled.parameter_arguments);
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

  auto client = CompileClient();
  if (!client.ok()) return client.status();
  xla::CompileOptions options =
      MakeCompileOptions(lowered, metadata, partitions, compiled.device_assignment.get());
  if (lowered.for_one_replica) {
    OrderCollectives(results->computation.mutable_proto());
  } else if (compiled.num_replicas > 1 && partitions == 1 && compiled.core_slices.empty() &&
             !HasDynamicSizes(*results) && GetMachineOptions().share_updates) {
    auto split = SplitUpdate(results->computation.proto(), compiled.num_replicas,
                             MirroredParameters(lowered, metadata, compiled));
    if (split.has_value()) {
      auto update = BuildSharedUpdate(*client, lowered, *split, metadata.args_size(), &compiled);
      if (!update.ok()) return update.status();
      compiled.shared_update = *std::move(update);
      results->computation = xla::XlaComputation(std::move(split->replica));
    }
  }
  compiled.waits = lowered.has_host_transfers || HasCollectives(results->computation.proto());
  auto executable = Compile(*client, results->computation, std::move(options));
  if (!executable.ok()) return executable.status();
  compiled.executable = *std::move(executable);
  return Program::Create(std::move(compiled));
}

}  // namespace tf_tpu_ext
