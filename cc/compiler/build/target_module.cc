#include "cc/compiler/build/target_module.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "cc/base/core_numbers.h"
#include "cc/base/number.h"
#include "cc/base/user_lines.h"
#include "cc/compiler/build/program_description.h"
#include "cc/compiler/build/program_notes.h"
#include "cc/compiler/build/program_source.h"
#include "cc/compiler/hlo/module.h"
#include "cc/program/compiled_program.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/pjrt/pjrt_executable.h"
#include "xla/service/computation_placer.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {
namespace {

using Metadata = tensorflow::tpu::TPUCompileMetadataProto;

xla::CompileOptions OptionsFor(const CompiledProgram& compiled, const Metadata& metadata) {
  const int cores = compiled.num_cores_per_replica;
  ByNumber<Slot, Core> assigned = compiled.cores;
  if (assigned.empty()) assigned.Add(Core(0));
  xla::CompileOptions options;
  xla::ExecutableBuildOptions& build = options.executable_build_options;
  build.set_num_replicas(compiled.num_replicas);
  build.set_num_partitions(cores);
  build.set_use_spmd_partitioning(PartitioningOf(metadata) == Partitioning::kSpmd);
  build.set_device_assignment(*ToDeviceAssignment(assigned, compiled.num_replicas, cores));
  return options;
}

// For most programs, tf2xla knows no lines. For the others, it names a line in TensorFlow's own
// code.
void NameLines(const OpLines& lines, xla::HloModule* module) {
  for (xla::HloComputation* computation : module->computations()) {
    for (xla::HloInstruction* instruction : computation->instructions()) {
      xla::OpMetadata metadata = instruction->metadata();
      // Inlined functions have several names. The last one is the complete one.
      const std::string& names = metadata.op_name();
      const std::string name = names.substr(names.rfind(';') + 1);
      const SourceLine source = lines.Find(name);
      metadata.set_op_name(name);
      metadata.set_source_file(source.file);
      metadata.set_source_line(source.line);
      instruction->set_metadata(metadata);
    }
  }
}

}  // namespace

absl::Status DescribeForTarget(const LoweredModule& lowered, const Metadata& metadata,
                               TargetProgram* program) {
  ProgramSource source;
  TF_ASSIGN_OR_RETURN(source.compiled, DescribeProgram(lowered, metadata));
  source.updated_arguments = lowered.updated_arguments;
  program->num_replicas = source.compiled.num_replicas;
  program->num_cores_per_replica = source.compiled.num_cores_per_replica;
  TF_ASSIGN_OR_RETURN(std::unique_ptr<xla::HloModule> module,
                      ToModule(*lowered.result.computation));
  TF_RETURN_IF_ERROR(DonateVariables(source, module.get()));
  NameLines(lowered.lines, module.get());
  program->notes = NotesOf(*module, lowered.lines);
  TF_ASSIGN_OR_RETURN(const xla::CompileOptionsProto options,
                      OptionsFor(source.compiled, metadata).ToProto());
  if (!ToComputation(*module).proto().SerializeToString(&program->module) ||
      !options.SerializeToString(&program->options)) {
    return absl::ResourceExhaustedError("The program is too large to be described in 2 GB.");
  }
  if (lowered.takes.embedding) {
    program->not_asked =
        "TPU embeddings: tables, lookups and updates. Their activations and gradients are "
        "transfers from and to the host, of the same sizes.";
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
