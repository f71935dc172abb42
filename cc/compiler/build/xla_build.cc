#include "cc/compiler/build/xla_build.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/log/log.h"
#include "absl/strings/str_cat.h"
#include "cc/base/process.h"
#include "cc/compiler/build/program_source.h"
#include "cc/compiler/build/xla_compiler.h"
#include "cc/compiler/hlo/collective_order.h"
#include "cc/compiler/hlo/module.h"
#include "cc/compiler/hlo/padded_arguments.h"
#include "cc/compiler/hlo/static_results.h"
#include "cc/program/kernel_call.h"
#include "llvm/ADT/StringRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/transforms/simplifiers/hlo_dce.h"
#include "xla/service/computation_placer.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

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

// The parameters that are variables with new values, or that the bridge knows to be alike.
std::vector<int> MirroredParameters(const LoweredModule& lowered, const Metadata& metadata,
                                    const CompiledProgram& compiled) {
  absl::flat_hash_set<int> updated;
  for (const auto& [argument, output] : lowered.updated_arguments) updated.insert(argument);
  std::vector<int> mirrored;
  for (size_t parameter = 0; parameter < compiled.parameter_arguments.size(); ++parameter) {
    const int argument = compiled.parameter_arguments[parameter];
    if (updated.contains(argument) || metadata.args(argument).is_same_data_across_replicas()) {
      mirrored.push_back(parameter);
    }
  }
  return mirrored;
}

// How many calls of TensorFlow's kernels the computation holds.
int64_t CountKernelCalls(const xla::XlaComputation& computation) {
  int64_t calls = 0;
  for (const auto& part : computation.proto().computations()) {
    for (const auto& instruction : part.instructions()) {
      calls += instruction.custom_call_target() == kKernelTarget ? 1 : 0;
    }
  }
  return calls;
}

// What the compiler needed would stay with the allocator, on top of what the program needs when it
// runs. Takes 4 to 20 ms.
void ReturnFreedMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
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

absl::StatusOr<std::shared_ptr<const CompiledProgram>> BuildProgram(const LoweredModule& lowered,
                                                                    const Metadata& metadata,
                                                                    int64_t id,
                                                                    CompilationRecord* record) {
  const Partitioning partitioning = PartitioningOf(metadata);
  const int partitions = partitioning == Partitioning::kSpmd ? metadata.num_cores_per_replica() : 1;
  CompiledProgram compiled;
  compiled.name = record->name;
  compiled.id = id;
  compiled.num_replicas = std::max(1, metadata.num_replicas());
  compiled.num_cores_per_replica = std::max(1, metadata.num_cores_per_replica());
  auto cores = AssignCores(metadata);
  if (!cores.ok()) return cores.status();
  compiled.cores = *std::move(cores);
  compiled.takes = lowered.takes;
  compiled.host_functions = lowered.host_functions;
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
  TF_ASSIGN_OR_RETURN(std::unique_ptr<xla::HloModule> module,
                      ToModule(*lowered.result.computation));
  compiled.padded_arguments = PaddedArguments(*module, compiled.parameter_arguments);
  TF_ASSIGN_OR_RETURN(const DynamicSizes dynamic_sizes, MakeResultsStatic(module.get()));
  size_t result = 0;
  for (CompiledProgram::Output& output : compiled.outputs) {
    if (output.constant != nullptr) continue;
    if (result < dynamic_sizes.size()) output.dynamic_sizes = dynamic_sizes[result];
    ++result;
  }

  auto compiler = XlaCompiler::Create(record->name);
  if (!compiler.ok()) return compiler.status();
  ProgramSource source;
  source.options =
      MakeCompileOptions(lowered, metadata, partitions, compiled.device_assignment.get());
  source.num_arguments = metadata.args_size();
  source.updated_arguments = lowered.updated_arguments;
  compiled.waits = lowered.has_host_transfers;
  const bool replicas_alike = !lowered.for_one_replica && compiled.num_replicas > 1 &&
                              partitions == 1 && compiled.core_slices.empty() &&
                              dynamic_sizes.empty();
  if (replicas_alike) source.mirrored_parameters = MirroredParameters(lowered, metadata, compiled);
  source.shares_update = replicas_alike && lowered.options.share_updates;
  source.overwrites_variables = compiled.num_replicas == 1 && partitions == 1 &&
                                compiled.core_slices.empty() && dynamic_sizes.empty() &&
                                compiled.host_functions.empty() && lowered.options.share_updates;
  if (lowered.for_one_replica) TF_RETURN_IF_ERROR(OrderCollectives(module.get()));
  // Passes count users, and split off what has none.
  TF_RETURN_IF_ERROR(xla::HloDCE().Run(module.get()).status());
  source.module = std::move(module);
  source.compiled = std::move(compiled);
  record->tensorflow_kernels = CountKernelCalls(*lowered.result.computation);
  if (replicas_alike && lowered.options.stack_replicas && source.compiled.host_functions.empty() &&
      source.compiled.padded_arguments.empty()) {
    auto stacked = BuildStacked(*compiler, source, metadata);
    if (stacked.ok()) {
      source.compiled.stacked = *std::move(stacked);
    } else {
      // The error may be the program's own: then compiling it for one replica will tell.
      LOG(WARNING) << "TPU program " << record->name
                   << " can't be compiled for groups of replicas: " << stacked.status().message();
    }
  }
  absl::StatusOr<std::shared_ptr<const CompiledProgram>> program;
  if (source.compiled.stacked != nullptr) {
    record->stacked_replicas = source.compiled.stacked->group_size;
    program = std::make_shared<const CompiledProgram>(std::move(source.compiled));
  } else {
    program = BuildSource(*compiler, std::move(source));
  }
  record->restored = compiler->restored_all();
  ReturnFreedMemory();
  return program;
}

}  // namespace tf_tpu_ext
