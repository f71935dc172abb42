#include "cc/compiler/xla_build.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/log/log.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cc/compiler/collective_order.h"
#include "cc/compiler/compilation_cache.h"
#include "cc/compiler/padded_arguments.h"
#include "cc/compiler/split_update.h"
#include "cc/compiler/stack_replicas.h"
#include "cc/compiler/static_results.h"
#include "cc/device/machine.h"
#include "cc/runtime/compute_pool.h"
#include "cc/runtime/kernel_call.h"
#include "cc/runtime/stacked_replicas.h"
#include "cc/transfer/host_functions.h"
#include "llvm/ADT/StringRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "tsl/platform/protobuf.h"
#include "xla/pjrt/cpu/cpu_client.h"
#include "xla/pjrt/plugin/xla_cpu/xla_cpu_pjrt_client.h"
#include "xla/service/computation_placer.h"
#include "xla/tsl/lib/strings/proto_serialization.h"

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

std::shared_ptr<xla::Executable> CpuExecutableOf(const xla::PjRtExecutable& executable) {
  return static_cast<const xla::PjRtCpuExecutable&>(executable).cpu_executable();
}

// What the machine code of a computation depends on.
absl::StatusOr<std::string> CacheKey(const xla::XlaComputation& computation,
                                     const xla::CompileOptions& options) {
  auto described = options.ToProto();
  if (!described.ok()) return described.status();
  // Numbers of the process; nothing compiled depends on them.
  xla::HloModuleProto module = computation.proto();
  module.clear_id();
  std::string key = CompilationEnvironment();
  for (const tsl::protobuf::MessageLite* part :
       {static_cast<const tsl::protobuf::MessageLite*>(&*described),
        static_cast<const tsl::protobuf::MessageLite*>(&module)}) {
    std::string bytes;
    if (!tsl::SerializeToStringDeterministic(*part, &bytes)) {
      return absl::InternalError("The program is too large to be described in 2 GB.");
    }
    absl::StrAppend(&key, bytes.size(), ":", bytes);
  }
  return key;
}

// Compiles computations, or takes their machine code from the process's CompilationCache.
class Compiler {
 public:
  Compiler(xla::PjRtClient* client, std::string name) : client_(client), name_(std::move(name)) {}

  absl::StatusOr<std::shared_ptr<xla::Executable>> Compile(const xla::XlaComputation& computation,
                                                           const xla::CompileOptions& options) {
    std::string key;
    if (cache_ != nullptr) {
      absl::StatusOr<std::string> described = CacheKey(computation, options);
      if (described.ok()) {
        key = *std::move(described);
        auto executable = Restore(key, options);
        if (executable.ok()) return executable;
        if (!absl::IsNotFound(executable.status())) Warn("read", executable.status());
      } else {
        Warn("look for", described.status());
      }
    }
    compiled_ = true;
    auto executable = client_->Compile(computation, options);
    if (!executable.ok()) return executable.status();
    if (!key.empty()) {
      absl::StatusOr<std::string> code = (*executable)->SerializeExecutable();
      const absl::Status written = code.ok() ? cache_->Write(key, *code) : code.status();
      if (!written.ok()) Warn("write", written);
    }
    return CpuExecutableOf(**executable);
  }

  // Whether nothing had to be compiled.
  bool restored_all() const { return !compiled_; }

 private:
  absl::StatusOr<std::shared_ptr<xla::Executable>> Restore(const std::string& key,
                                                           const xla::CompileOptions& options) {
    absl::StatusOr<std::string> code = cache_->Read(key);
    if (!code.ok()) return code.status();
    auto executable = client_->LoadSerializedExecutable(*code, options, xla::LoadOptions());
    if (!executable.ok()) return executable.status();
    return CpuExecutableOf(*(*executable)->GetExecutable());
  }

  void Warn(const char* what, const absl::Status& status) const {
    LOG(WARNING) << "Can't " << what << " the machine code of TPU program " << name_
                 << " in the compilation cache " << cache_->folder()
                 << "; the program is compiled here: " << status.message();
  }

  xla::PjRtClient* const client_;
  const std::string name_;
  const std::shared_ptr<const CompilationCache> cache_ = CompilationCache::Current();
  bool compiled_ = false;
};

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

// A program as it is compiled: whole, or after something has been split off.
struct Source {
  xla::HloModuleProto module;
  xla::CompileOptions options;
  CompiledProgram compiled;  // without an executable
  int num_arguments = 0;
  // Parameters that are expected to be equal for all replicas.
  std::vector<int> mirrored_parameters;
  // Variables with new values: numbers of an argument and of an output.
  std::vector<std::pair<int, int>> updated_arguments;
  // Whether what its replicas compute alike may be split off.
  bool shares_update = false;
};

// Where each number stands in the list.
absl::flat_hash_map<int, int> Places(const std::vector<int>& numbers) {
  absl::flat_hash_map<int, int> places;
  for (size_t i = 0; i < numbers.size(); ++i) places.emplace(numbers[i], i);
  return places;
}

// Lets the update write the new values of variables over the old ones.
std::vector<std::pair<int, int>> AliasVariables(const Source& source, const SharedUpdate& update,
                                                xla::HloModuleProto* module) {
  const absl::flat_hash_map<int, int> result_of_output = Places(update.update_outputs);
  const absl::flat_hash_map<int, int> parameter_of_argument =
      Places(source.compiled.parameter_arguments);
  std::vector<std::pair<int, int>> updated;
  for (const auto& [argument, step_output] : source.updated_arguments) {
    const auto result = result_of_output.find(step_output);
    const auto parameter = parameter_of_argument.find(argument);
    if (result == result_of_output.end() || parameter == parameter_of_argument.end()) continue;
    auto* entry = module->mutable_input_output_alias()->add_entries();
    entry->add_output_shape_index(result->second);
    entry->set_parameter_number(parameter->second);
    entry->set_kind(xla::MAY_ALIAS);
    updated.emplace_back(argument, result->second);
  }
  return updated;
}

// The outputs that the program computes, in order.
std::vector<int> OutputsOfResults(const std::vector<CompiledProgram::Output>& outputs) {
  std::vector<int> output_of_result;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].constant == nullptr) output_of_result.push_back(i);
  }
  return output_of_result;
}

// Builds the update, and leaves the rest of the outputs in `source`.
absl::StatusOr<std::shared_ptr<const SharedUpdate>> BuildSharedUpdate(Compiler& compiler,
                                                                      const SplitProgram& split,
                                                                      Source* source) {
  CompiledProgram* const compiled = &source->compiled;
  std::vector<CompiledProgram::Output> outputs = std::move(compiled->outputs);
  const std::vector<int> output_of_result = OutputsOfResults(outputs);
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
  const absl::flat_hash_map<int, int> result_of_output = Places(update->update_outputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (result_of_output.contains(i)) continue;
    update->replica_outputs.push_back(i);
    compiled->outputs.push_back(outputs[i]);
  }
  update->combinations = split.combinations;
  update->num_arguments = source->num_arguments;
  program.parameter_arguments = compiled->parameter_arguments;
  for (size_t i = 0; i < split.combinations.size(); ++i) {
    CompiledProgram::Output combined;
    auto dtype = tensorflow::EncodePrimitiveTypeAsDataType(split.combinations[i].type);
    if (!dtype.ok()) return dtype.status();
    combined.dtype = *dtype;
    compiled->outputs.push_back(std::move(combined));
    program.parameter_arguments.push_back(source->num_arguments + i);
  }
  compiled->num_combined_outputs = split.combinations.size();
  for (int parameter : split.update_parameters) {
    update->read_arguments.push_back(compiled->parameter_arguments[parameter]);
  }
  xla::HloModuleProto module = split.update;
  update->updated_variables = AliasVariables(*source, *update, &module);
  xla::CompileOptions options;
  options.compile_portable_executable = true;
  auto executable = compiler.Compile(xla::XlaComputation(std::move(module)), options);
  if (!executable.ok()) return executable.status();
  program.executable = *std::move(executable);
  auto created = Program::Create(std::move(program));
  if (!created.ok()) return created.status();
  update->program = *std::move(created);
  return update;
}

absl::StatusOr<std::shared_ptr<Program>> Build(Compiler& compiler, Source source) {
  CompiledProgram& compiled = source.compiled;
  if (source.shares_update) {
    auto split = SplitUpdate(source.module, compiled.num_replicas, source.mirrored_parameters);
    if (split.has_value()) {
      auto update = BuildSharedUpdate(compiler, *split, &source);
      if (!update.ok()) return update.status();
      compiled.shared_update = *std::move(update);
      source.module = std::move(split->replica);
    }
  }
  compiled.waits = compiled.waits || HasCollectives(source.module);
  auto executable = compiler.Compile(xla::XlaComputation(std::move(source.module)), source.options);
  if (!executable.ok()) return executable.status();
  compiled.executable = *std::move(executable);
  return Program::Create(std::move(compiled));
}

// The parameters that hold variables, or what the bridge knows to be alike.
std::vector<int> StackedMirroredParameters(const Source& source, const Metadata& metadata) {
  std::vector<int> mirrored = source.mirrored_parameters;
  const std::vector<int>& arguments = source.compiled.parameter_arguments;
  for (size_t parameter = 0; parameter < arguments.size(); ++parameter) {
    if (metadata.args(arguments[parameter]).kind() == Metadata::Arg::VARIABLE &&
        !absl::c_linear_search(mirrored, parameter)) {
      mirrored.push_back(parameter);
    }
  }
  return mirrored;
}

// Lets groups of replicas run as one program. Nothing if the program is not of that kind.
absl::StatusOr<std::shared_ptr<const StackedReplicas>> BuildStacked(Compiler& compiler,
                                                                    const Source& whole,
                                                                    const Metadata& metadata) {
  const int num_replicas = whole.compiled.num_replicas;
  StackOptions options;
  options.num_replicas = num_replicas;
  options.mirrored_parameters = StackedMirroredParameters(whole, metadata);
  const std::vector<int> output_of_result = OutputsOfResults(whole.compiled.outputs);
  const absl::flat_hash_map<int, int> result_of_output = Places(output_of_result);
  const absl::flat_hash_map<int, int> parameter_of_argument =
      Places(whole.compiled.parameter_arguments);
  for (const auto& [argument, output] : whole.updated_arguments) {
    const auto parameter = parameter_of_argument.find(argument);
    const auto result = result_of_output.find(output);
    if (parameter == parameter_of_argument.end() || result == result_of_output.end()) continue;
    options.updated_parameters.emplace_back(parameter->second, result->second);
  }
  absl::StatusOr<StackedModule> module =
      StackForProcessors(whole.module, options, ComputePool::NumThreads());
  if (!module.ok()) {
    VLOG(1) << "Each replica of TPU program " << whole.compiled.name
            << " runs for itself: " << module.status().message();
    return nullptr;
  }

  auto stacked = std::make_shared<StackedReplicas>();
  stacked->group_size = module->group_size;
  stacked->stacked_arguments.resize(whole.num_arguments);
  stacked->stacked_outputs.resize(whole.compiled.outputs.size());
  Source groups = whole;
  groups.mirrored_parameters.clear();
  for (size_t i = 0; i < module->stacked_parameters.size(); ++i) {
    const int argument = whole.compiled.parameter_arguments[i];
    if (module->stacked_parameters[i]) {
      stacked->stacked_arguments[argument] = true;
    } else {
      stacked->mirrored_arguments.push_back(argument);
      groups.mirrored_parameters.push_back(i);
    }
  }
  for (size_t i = 0; i < module->stacked_results.size(); ++i) {
    stacked->stacked_outputs[output_of_result[i]] = module->stacked_results[i];
  }
  groups.module = std::move(module->module);
  groups.compiled.num_replicas = num_replicas / stacked->group_size;
  groups.compiled.cores.clear();
  for (int group = 0; group < groups.compiled.num_replicas; ++group) {
    groups.compiled.cores.push_back(whole.compiled.cores[group * stacked->group_size]);
  }
  groups.compiled.device_assignment =
      ToDeviceAssignment(groups.compiled.cores, groups.compiled.num_replicas, 1);
  auto& build = groups.options.executable_build_options;
  build.set_num_replicas(groups.compiled.num_replicas);
  build.set_device_assignment(*groups.compiled.device_assignment);
  auto program = Build(compiler, std::move(groups));
  if (!program.ok()) return program.status();
  stacked->program = *std::move(program);
  stacked->build_alone = [whole] {
    auto client = CompileClient();
    if (!client.ok()) return absl::StatusOr<std::shared_ptr<Program>>(client.status());
    Compiler compiler(*client, whole.compiled.name);
    return Build(compiler, whole);
  };
  return stacked;
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

absl::StatusOr<std::shared_ptr<Program>> BuildProgram(const LoweredModule& lowered,
                                                      const Metadata& metadata, int64_t id,
                                                      CompilationRecord* record) {
  const absl::Time start = absl::Now();
  auto tell_time = absl::MakeCleanup([&] { record->building = absl::Now() - start; });
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
  Compiler compiler(*client, record->name);
  Source source;
  source.options =
      MakeCompileOptions(lowered, metadata, partitions, compiled.device_assignment.get());
  source.num_arguments = metadata.args_size();
  source.updated_arguments = lowered.updated_arguments;
  compiled.waits = lowered.has_host_transfers;
  const bool replicas_alike = !lowered.for_one_replica && compiled.num_replicas > 1 &&
                              partitions == 1 && compiled.core_slices.empty() &&
                              !HasDynamicSizes(*results);
  if (replicas_alike) source.mirrored_parameters = MirroredParameters(lowered, metadata, compiled);
  const MachineOptions machine = GetMachineOptions();
  source.shares_update = replicas_alike && machine.share_updates;
  if (lowered.for_one_replica) OrderCollectives(results->computation.mutable_proto());
  source.module = results->computation.proto();
  source.compiled = std::move(compiled);
  record->tensorflow_kernels = CountKernelCalls(*lowered.result.computation);
  if (replicas_alike && machine.stack_replicas && source.compiled.host_functions == nullptr &&
      source.compiled.padded_arguments.empty()) {
    auto stacked = BuildStacked(compiler, source, metadata);
    if (stacked.ok()) {
      source.compiled.stacked = *std::move(stacked);
    } else {
      // The error may be the program's own: then compiling it for one replica will tell.
      LOG(WARNING) << "TPU program " << record->name
                   << " can't be compiled for groups of replicas: " << stacked.status().message();
    }
  }
  absl::StatusOr<std::shared_ptr<Program>> program;
  if (source.compiled.stacked != nullptr) {
    record->stacked_replicas = source.compiled.stacked->group_size;
    program = Program::Create(std::move(source.compiled));
  } else {
    program = Build(compiler, std::move(source));
  }
  record->restored = compiler.restored_all();
  ReturnFreedMemory();
  return program;
}

}  // namespace tf_tpu_ext
