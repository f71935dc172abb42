#include "cc/compiler/build/xla_build.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/log/log.h"
#include "cc/compiler/build/program_description.h"
#include "cc/compiler/build/program_notes.h"
#include "cc/compiler/build/program_source.h"
#include "cc/compiler/build/xla_compiler.h"
#include "cc/compiler/hlo/collective_order.h"
#include "cc/compiler/hlo/insert_probes.h"
#include "cc/compiler/hlo/matmul_precision.h"
#include "cc/compiler/hlo/module.h"
#include "cc/compiler/hlo/native_random_bits.h"
#include "cc/compiler/hlo/padded_arguments.h"
#include "cc/compiler/hlo/product_kernels.h"
#include "cc/compiler/hlo/skip_computation.h"
#include "cc/compiler/hlo/static_results.h"
#include "cc/compiler/hlo/sum_in_products.h"
#include "cc/program/kernel_call.h"
#include "cc/program/probes.h"
#include "cc/program/value_numbers.h"
#include "llvm/ADT/StringRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "tsl/platform/tensor_float_32_utils.h"
#include "xla/hlo/builder/xla_computation.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/transforms/simplifiers/hlo_dce.h"
#include "xla/pjrt/pjrt_executable.h"
#include "xla/service/computation_placer.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using Metadata = tensorflow::tpu::TPUCompileMetadataProto;

xla::CompileOptions MakeCompileOptions(const CompiledProgram& compiled, int partitions,
                                       bool has_host_transfers) {
  xla::CompileOptions options;
  xla::ExecutableBuildOptions& build = options.executable_build_options;
  build.set_num_replicas(compiled.device_assignment == nullptr
                             ? compiled.num_replicas
                             : compiled.device_assignment->replica_count());
  build.set_num_partitions(partitions);
  build.set_use_spmd_partitioning(partitions > 1);
  if (compiled.device_assignment != nullptr) {
    build.set_device_assignment(*compiled.device_assignment);
  } else {
    options.compile_portable_executable = true;
  }
  if (has_host_transfers) {
    // If XLA:CPU knew a loop's trip count, it would no longer run the loop's condition, nor the
    // transfers in it.
    for (const char* pass :
         {"while-loop-trip-count-annotator", "while_loop_trip_count_annotator"}) {
      build.mutable_debug_options()->add_xla_disable_hlo_passes(pass);
    }
  }
  return options;
}

// The parameters that are variables with new values, or that the bridge knows to be equal on all
// replicas.
std::vector<ParameterNumber> MirroredParameters(const LoweredModule& lowered,
                                                const Metadata& metadata,
                                                const CompiledProgram& compiled) {
  absl::flat_hash_set<ArgumentNumber> updated;
  for (const auto& [argument, output] : lowered.updated_arguments) updated.insert(argument);
  std::vector<ParameterNumber> mirrored;
  for (ParameterNumber parameter : compiled.parameter_arguments.numbers()) {
    const ArgumentNumber argument = compiled.parameter_arguments[parameter];
    if (updated.contains(argument) ||
        metadata.args(argument.value()).is_same_data_across_replicas()) {
      mirrored.push_back(parameter);
    }
  }
  return mirrored;
}

// The number of calls of TensorFlow's kernels in the computation.
int64_t CountKernelCalls(const xla::XlaComputation& computation) {
  int64_t calls = 0;
  for (const auto& part : computation.proto().computations()) {
    for (const auto& instruction : part.instructions()) {
      calls += instruction.custom_call_target() == kKernelTarget ? 1 : 0;
    }
  }
  return calls;
}

// Otherwise the allocator would keep the memory that the compiler needed, in addition to what the
// program needs at run time. Takes 4 to 20 ms.
void ReturnFreedMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

// Records which dimensions of the computed outputs are dynamic, in the order of the outputs.
void NoteDynamicSizes(const DynamicSizes& of_results,
                      ByNumber<OutputNumber, CompiledProgram::Output>* outputs) {
  ResultNumber result;
  for (CompiledProgram::Output& output : *outputs) {
    if (output.constant != nullptr) continue;
    if (of_results.Has(result)) output.dynamic_sizes = of_results[result];
    ++result;
  }
}

// Whether replicas differ only in their values: each runs on one core, and has results of the same
// sizes.
bool RunsAreAlike(const CompiledProgram& compiled) {
  return compiled.num_cores_per_replica == 1 &&
         absl::c_all_of(compiled.outputs, [](const CompiledProgram::Output& output) {
           return output.dynamic_sizes.empty();
         });
}

// The parameters that a program that computes nothing returns: for each variable that it updates,
// the old value.
std::map<int, int> ParametersOfResults(const LoweredModule& lowered,
                                       const CompiledProgram& compiled) {
  absl::flat_hash_map<OutputNumber, ArgumentNumber> argument_of_output;
  for (const auto& [argument, output] : lowered.updated_arguments) {
    argument_of_output[output] = argument;
  }
  // A function for one core takes its variables as resources.
  OutputNumber output(static_cast<int>(lowered.result.outputs.size()));
  for (const auto& update : lowered.result.resource_updates) {
    argument_of_output[output] = ArgumentNumber(update.input_index);
    ++output;
  }
  absl::flat_hash_map<ArgumentNumber, ParameterNumber> parameter_of_argument;
  for (ParameterNumber parameter : compiled.parameter_arguments.numbers()) {
    parameter_of_argument[compiled.parameter_arguments[parameter]] = parameter;
  }
  std::map<int, int> parameter_of_result;
  int result = 0;
  for (OutputNumber each : compiled.outputs.numbers()) {
    if (compiled.outputs[each].constant != nullptr) continue;
    const auto argument = argument_of_output.find(each);
    if (argument != argument_of_output.end() && parameter_of_argument.contains(argument->second)) {
      parameter_of_result[result] = parameter_of_argument[argument->second].value();
    }
    ++result;
  }
  return parameter_of_result;
}

// Whether the program does nothing, because it is only compiled for a target. A program that
// interacts with the host while it runs does compute, because the host would wait for it.
bool SkipsComputation(const LoweredModule& lowered, const xla::HloModule& module) {
  return !lowered.options.compute && !lowered.has_host_transfers && !lowered.takes.any() &&
         lowered.host_functions.empty() && module.result_shape().IsTuple() &&
         !module.result_shape().is_dynamic();
}

// Makes the program show its values.
std::shared_ptr<const Probes> MakeProbes(const LoweredModule& lowered, const Metadata& metadata,
                                         const CompiledProgram& compiled, xla::HloModule* module) {
  Probes probes = InsertProbes(module, /*divided=*/NumPartitions(metadata) > 1);
  for (Probe& probe : probes.probes) probe.source = lowered.lines.Find(probe.op).Text();
  std::map<ParameterNumber, ResultNumber> results;
  for (const auto& [result, parameter] : ParametersOfResults(lowered, compiled)) {
    results[ParameterNumber(parameter)] = ResultNumber(result);
    if (probes.results.Has(ResultNumber(result))) {
      probes.results[ResultNumber(result)].variable = ParameterNumber(parameter);
    }
  }
  for (ParameterNumber parameter : compiled.parameter_arguments.numbers()) {
    const ArgumentNumber argument = compiled.parameter_arguments[parameter];
    // A function for one core has no metadata of its arguments.
    if (argument.value() >= metadata.args_size() ||
        !metadata.args(argument.value()).is_same_data_across_replicas()) {
      continue;
    }
    MirroredVariable mirrored{parameter, std::nullopt};
    if (const auto result = results.find(parameter); result != results.end()) {
      mirrored.result = result->second;
    }
    probes.mirrored.push_back(mirrored);
  }
  return std::make_shared<const Probes>(std::move(probes));
}

// The program as one module, with everything that decides in which forms it may be compiled.
absl::StatusOr<ProgramSource> MakeSource(const LoweredModule& lowered, const Metadata& metadata,
                                         CompiledProgram compiled, CompilationRecord* record) {
  TF_ASSIGN_OR_RETURN(std::unique_ptr<xla::HloModule> module,
                      ToModule(*lowered.result.computation));
  record->notes = NotesOf(*module, lowered.lines);
  record->first_op = FirstOp(*module);
  if (SkipsComputation(lowered, *module)) {
    module = WithoutComputation(ParametersOfResults(lowered, compiled), *module);
  }
  compiled.padded_arguments = PaddedArguments(*module, compiled.parameter_arguments);
  TF_ASSIGN_OR_RETURN(const DynamicSizes dynamic_sizes, MakeResultsStatic(module.get()));
  NoteDynamicSizes(dynamic_sizes, &compiled.outputs);
  // Must come before anything without users is removed: replicas with their own programs meet in
  // every collective, even if only some of them use its result.
  if (lowered.for_one_replica) TF_RETURN_IF_ERROR(OrderCollectives(module.get()));
  // The passes that follow count users, and would split off code without users.
  TF_RETURN_IF_ERROR(xla::HloDCE().Run(module.get()).status());
  if (!lowered.options.full_matmul_precision) {
    // tf2xla sets the precision of convolutions from this setting.
    TF_RETURN_IF_ERROR(RoundProducts(tsl::tensor_float_32_execution_enabled(), module.get()));
  }

  if (lowered.options.check)
    compiled.probes = MakeProbes(lowered, metadata, compiled, module.get());

  // A watched program runs as written, on each replica.
  if (compiled.probes == nullptr) {
    TF_RETURN_IF_ERROR(SumInProducts(module.get()));
    if (NumPartitions(metadata) == 1) TF_RETURN_IF_ERROR(MakeRandomBitsNatively(module.get()));
  }

  ProgramSource source;
  record->tensorflow_kernels = CountKernelCalls(*lowered.result.computation);
  // Only XLA can split a product over cores.
  if (lowered.options.tensorflow_kernels && NumPartitions(metadata) == 1) {
    const int64_t products = CountProductsForKernels(*module);
    source.calls_kernels_for_products = products > 0 && KernelsMultiplyBFloat16Fast();
    if (source.calls_kernels_for_products) record->tensorflow_kernels += products;
  }
  source.options =
      MakeCompileOptions(compiled, NumPartitions(metadata), lowered.has_host_transfers);
  source.num_arguments = metadata.args_size();
  source.updated_arguments = lowered.updated_arguments;
  // Whether replicas on other hosts fail is known only at the end of the step, as is what they do.
  const bool alike = RunsAreAlike(compiled) && !compiled.runs_on_other_hosts();
  source.replicas_alike = alike && compiled.num_replicas > 1 && !lowered.for_one_replica;
  if (source.replicas_alike) {
    source.mirrored_parameters = MirroredParameters(lowered, metadata, compiled);
  }
  const bool shares = lowered.options.share_updates && compiled.probes == nullptr;
  source.shares_update = source.replicas_alike && shares;
  source.overwrites_variables =
      alike && compiled.num_replicas == 1 && compiled.host_functions.empty() && shares;
  source.module = std::move(module);
  source.compiled = std::move(compiled);
  return source;
}

// The program for groups of replicas. Null if each replica runs on its own.
std::shared_ptr<const BatchedReplicas> TryBatched(XlaCompiler& compiler,
                                                  const ProgramSource& source,
                                                  const Metadata& metadata) {
  auto batched = BuildBatched(compiler, source, metadata);
  if (batched.ok()) return *std::move(batched);
  // The error may be the program's own. If so, compiling it for one replica reports it.
  LOG(WARNING) << "TPU program " << source.compiled.name
               << " can't be compiled for groups of replicas: " << batched.status().message();
  return nullptr;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CompiledProgram>> BuildProgram(const LoweredModule& lowered,
                                                                    const Metadata& metadata,
                                                                    int64_t id,
                                                                    CompilationRecord* record) {
  // Declared first, so that it runs last, when everything that was needed has been freed.
  const absl::Cleanup at_end = ReturnFreedMemory;
  TF_ASSIGN_OR_RETURN(CompiledProgram compiled, DescribeProgram(lowered, metadata));
  compiled.name = record->name;
  compiled.id = id;
  TF_ASSIGN_OR_RETURN(ProgramSource source,
                      MakeSource(lowered, metadata, std::move(compiled), record));
  TF_ASSIGN_OR_RETURN(XlaCompiler compiler, XlaCompiler::Create(record->name));
  if (source.replicas_alike && lowered.options.stack_replicas &&
      source.compiled.probes == nullptr && source.compiled.host_functions.empty() &&
      source.compiled.padded_arguments.empty()) {
    source.compiled.batched = TryBatched(compiler, source, metadata);
  }
  std::shared_ptr<const CompiledProgram> program;
  if (source.compiled.batched != nullptr) {
    record->batched_replicas = source.compiled.batched->group_size;
    program = std::make_shared<const CompiledProgram>(std::move(source.compiled));
  } else {
    TF_ASSIGN_OR_RETURN(program, BuildSource(compiler, std::move(source)));
  }
  record->restored = compiler.restored_all();
  return program;
}

}  // namespace tf_tpu_ext
