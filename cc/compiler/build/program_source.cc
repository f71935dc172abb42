#include "cc/compiler/build/program_source.h"

#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/log/log.h"
#include "absl/strings/str_cat.h"
#include "cc/base/compute_pool.h"
#include "cc/base/core_numbers.h"
#include "cc/base/number.h"
#include "cc/base/process.h"
#include "cc/compiler/build/program_description.h"
#include "cc/compiler/hlo/collective_order.h"
#include "cc/compiler/hlo/native_random_bits.h"
#include "cc/compiler/hlo/product_kernels.h"
#include "cc/compiler/replicas/group_replicas.h"
#include "cc/compiler/replicas/split_update.h"
#include "cc/program/value_numbers.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_input_output_alias_config.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using Metadata = tensorflow::tpu::TPUCompileMetadataProto;

// Maps each element to its number.
template <typename N, typename T>
absl::flat_hash_map<T, N> Inverse(const ByNumber<N, T>& elements) {
  absl::flat_hash_map<T, N> numbers;
  for (N number : elements.numbers()) numbers.emplace(elements[number], number);
  return numbers;
}

// A variable with a new value, in a program of the source.
struct UpdatedVariable {
  ArgumentNumber argument;
  ParameterNumber parameter;
  ResultNumber result;
};

// The variables whose new values a program computes. `output_of_result` maps the program's results
// to the step's outputs.
std::vector<UpdatedVariable> UpdatedVariables(
    const ProgramSource& source, const ByNumber<ResultNumber, OutputNumber>& output_of_result) {
  const auto result_of_output = Inverse(output_of_result);
  const auto parameter_of_argument = Inverse(source.compiled.parameter_arguments);
  std::vector<UpdatedVariable> updated;
  for (const auto& [argument, output] : source.updated_arguments) {
    const auto result = result_of_output.find(output);
    const auto parameter = parameter_of_argument.find(argument);
    if (result == result_of_output.end() || parameter == parameter_of_argument.end()) continue;
    updated.push_back({argument, parameter->second, result->second});
  }
  return updated;
}

// Lets a program write new values of variables over the old ones, and returns these variables.
// `output_of_result` maps the program's results to the step's outputs.
absl::StatusOr<std::vector<UpdatedVariable>> Overwrite(
    const ProgramSource& source, const ByNumber<ResultNumber, OutputNumber>& output_of_result,
    xla::HloModule* module) {
  std::vector<UpdatedVariable> updated = UpdatedVariables(source, output_of_result);
  for (const UpdatedVariable& variable : updated) {
    TF_RETURN_IF_ERROR(module->input_output_alias_config().SetUpAlias(
        {variable.result.value()}, variable.parameter.value(), {},
        xla::HloInputOutputAliasConfig::kMayAlias));
  }
  return updated;
}

// Whether the program calls code that may fail.
bool CallsOut(const xla::HloModule& module) {
  const auto may_fail = [](const xla::HloInstruction* instruction) {
    return instruction->opcode() == xla::HloOpcode::kCustomCall &&
           !IsNativeRandomBits(*instruction);
  };
  return absl::c_any_of(module.computations(), [&](const xla::HloComputation* computation) {
    return absl::c_any_of(computation->instructions(), may_fail);
  });
}

// The outputs that the program computes, in order.
ByNumber<ResultNumber, OutputNumber> OutputsOfResults(
    const ByNumber<OutputNumber, CompiledProgram::Output>& outputs) {
  ByNumber<ResultNumber, OutputNumber> output_of_result;
  for (OutputNumber output : outputs.numbers()) {
    if (outputs[output].constant == nullptr) output_of_result.Add(output);
  }
  return output_of_result;
}

// Builds the update and leaves the remaining outputs in `source`.
absl::StatusOr<std::shared_ptr<const SharedUpdate>> BuildSharedUpdate(XlaCompiler& compiler,
                                                                      SplitProgram split,
                                                                      ProgramSource* source) {
  CompiledProgram* const compiled = &source->compiled;
  const ByNumber<OutputNumber, CompiledProgram::Output> outputs = std::move(compiled->outputs);
  const ByNumber<ResultNumber, OutputNumber> output_of_result = OutputsOfResults(outputs);
  auto update = std::make_shared<SharedUpdate>();
  CompiledProgram program;
  program.name = absl::StrCat(compiled->name, " (shared update)");
  program.id = compiled->id;
  program.waits = false;
  // The update computes all its outputs: output i is its result i.
  ByNumber<ResultNumber, OutputNumber> output_of_update;
  for (ResultNumber result : ToNumbers<ResultNumber>(split.update_results)) {
    const OutputNumber output = output_of_result[result];
    output_of_update.Add(output);
    update->update_outputs.Add(output);
    program.outputs.Add(outputs[output]);
  }
  compiled->outputs.clear();
  const auto result_of_output = Inverse(output_of_update);
  for (OutputNumber output : outputs.numbers()) {
    if (result_of_output.contains(output)) continue;
    update->replica_outputs.Add(output);
    compiled->outputs.Add(outputs[output]);
  }
  update->combinations = split.combinations;
  update->num_arguments = source->num_arguments;
  program.parameter_arguments = compiled->parameter_arguments;
  for (size_t i = 0; i < split.combinations.size(); ++i) {
    CompiledProgram::Output combined;
    TF_ASSIGN_OR_RETURN(combined.dtype,
                        tensorflow::EncodePrimitiveTypeAsDataType(split.combinations[i].type));
    compiled->outputs.Add(std::move(combined));
  }
  for (int i = 0; i < split.num_combined_values; ++i) {
    program.parameter_arguments.Add(ArgumentNumber(source->num_arguments + i));
  }
  compiled->num_combined_outputs = split.combinations.size();
  for (ParameterNumber parameter : ToNumbers<ParameterNumber>(split.update_parameters)) {
    update->read_arguments.push_back(compiled->parameter_arguments[parameter]);
  }
  TF_ASSIGN_OR_RETURN(const std::vector<UpdatedVariable> updated,
                      Overwrite(*source, output_of_update, split.update.get()));
  for (const UpdatedVariable& variable : updated) {
    update->updated_variables.emplace_back(variable.argument,
                                           OutputNumber(variable.result.value()));
  }
  xla::CompileOptions options;
  options.compile_portable_executable = true;
  TF_ASSIGN_OR_RETURN(program.executable, compiler.Compile(std::move(split.update), options));
  update->program = std::make_shared<const CompiledProgram>(std::move(program));
  return update;
}

// The parameters that hold variables, or that the bridge knows to be equal on all replicas.
std::vector<ParameterNumber> BatchedMirroredParameters(const ProgramSource& source,
                                                       const Metadata& metadata) {
  std::vector<ParameterNumber> mirrored = source.mirrored_parameters;
  const ByNumber<ParameterNumber, ArgumentNumber>& arguments = source.compiled.parameter_arguments;
  for (ParameterNumber parameter : arguments.numbers()) {
    if (metadata.args(arguments[parameter].value()).kind() == Metadata::Arg::VARIABLE &&
        !absl::c_linear_search(mirrored, parameter)) {
      mirrored.push_back(parameter);
    }
  }
  return mirrored;
}

}  // namespace

absl::Status DonateVariables(const ProgramSource& source, xla::HloModule* module) {
  return Overwrite(source, OutputsOfResults(source.compiled.outputs), module).status();
}

absl::StatusOr<std::shared_ptr<const CompiledProgram>> BuildSource(XlaCompiler& compiler,
                                                                   ProgramSource source) {
  CompiledProgram& compiled = source.compiled;
  std::unique_ptr<xla::HloModule> module;
  if (source.shares_update) {
    TF_ASSIGN_OR_RETURN(
        std::optional<SplitProgram> split,
        SplitUpdate(*source.module, compiled.num_replicas, ToValues(source.mirrored_parameters)));
    if (split.has_value()) {
      module = std::move(split->replica);
      TF_ASSIGN_OR_RETURN(compiled.shared_update,
                          BuildSharedUpdate(compiler, *std::move(split), &source));
    }
  }
  // The source may still be needed for other forms of the program.
  if (module == nullptr) module = source.module->Clone(/*suffix=*/"");
  // The shared update keeps its products: it must not fail midway, as a kernel may.
  if (source.calls_kernels_for_products) TF_RETURN_IF_ERROR(UseKernelsForProducts(module.get()));
  // Only what is left counts: the split removes collectives.
  compiled.waits = compiled.waits || HasCollectives(*module);
  if (source.overwrites_variables && !compiled.waits && !CallsOut(*module)) {
    const ByNumber<ResultNumber, OutputNumber> output_of_result =
        OutputsOfResults(compiled.outputs);
    TF_ASSIGN_OR_RETURN(const std::vector<UpdatedVariable> updated,
                        Overwrite(source, output_of_result, module.get()));
    for (const UpdatedVariable& variable : updated) {
      compiled.overwritten_variables.emplace_back(variable.argument,
                                                  output_of_result[variable.result]);
    }
  }
  TF_ASSIGN_OR_RETURN(compiled.executable, compiler.Compile(std::move(module), source.options));
  return std::make_shared<const CompiledProgram>(std::move(compiled));
}

absl::StatusOr<std::shared_ptr<const BatchedReplicas>> BuildBatched(XlaCompiler& compiler,
                                                                    const ProgramSource& whole,
                                                                    const Metadata& metadata) {
  const int num_replicas = whole.compiled.num_replicas;
  BatchOptions options;
  options.num_replicas = num_replicas;
  options.mirrored_parameters = ToValues(BatchedMirroredParameters(whole, metadata));
  const ByNumber<ResultNumber, OutputNumber> output_of_result =
      OutputsOfResults(whole.compiled.outputs);
  for (const UpdatedVariable& variable : UpdatedVariables(whole, output_of_result)) {
    options.updated_parameters.emplace_back(variable.parameter.value(), variable.result.value());
  }
  absl::StatusOr<BatchedModule> module =
      GroupReplicas(*whole.module, options, Process::Get().compute_pool->NumThreads());
  if (!module.ok()) {
    VLOG(1) << "Each replica of TPU program " << whole.compiled.name
            << " runs for itself: " << module.status().message();
    return nullptr;
  }

  auto batched = std::make_shared<BatchedReplicas>();
  batched->group_size = module->group_size;
  batched->batched_arguments.resize(whole.num_arguments);
  batched->batched_outputs.resize(whole.compiled.outputs.size());
  ProgramSource groups = whole;
  groups.mirrored_parameters.clear();
  for (ParameterNumber parameter : whole.compiled.parameter_arguments.numbers()) {
    const ArgumentNumber argument = whole.compiled.parameter_arguments[parameter];
    if (module->batched_parameters[parameter.value()]) {
      batched->batched_arguments[argument] = true;
    } else {
      batched->mirrored_arguments.push_back(argument);
      groups.mirrored_parameters.push_back(parameter);
    }
  }
  for (ResultNumber result : output_of_result.numbers()) {
    batched->batched_outputs[output_of_result[result]] = module->batched_results[result.value()];
  }
  groups.module = std::move(module->module);
  groups.compiled.num_replicas = num_replicas / batched->group_size;
  groups.compiled.cores.clear();
  for (int group = 0; group < groups.compiled.num_replicas; ++group) {
    groups.compiled.cores.Add(whole.compiled.cores[Slot(group * batched->group_size)]);
  }
  groups.compiled.device_assignment =
      ToDeviceAssignment(groups.compiled.cores, groups.compiled.num_replicas, 1);
  auto& build = groups.options.executable_build_options;
  build.set_num_replicas(groups.compiled.num_replicas);
  build.set_device_assignment(*groups.compiled.device_assignment);
  TF_ASSIGN_OR_RETURN(batched->program, BuildSource(compiler, std::move(groups)));
  batched->build_alone = [whole]() -> absl::StatusOr<std::shared_ptr<const CompiledProgram>> {
    TF_ASSIGN_OR_RETURN(XlaCompiler compiler, XlaCompiler::Create(whole.compiled.name));
    return BuildSource(compiler, whole);
  };
  return batched;
}

}  // namespace tf_tpu_ext
