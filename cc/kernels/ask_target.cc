#include "cc/kernels/ask_target.h"

#include <string>
#include <utility>

#include "cc/base/machine.h"
#include "cc/base/process.h"
#include "cc/compiler/build/target_module.h"
#include "cc/program/target_program.h"
#include "cc/runtime/target_programs.h"

namespace tf_tpu_ext {

void AskTarget(const CompilationRecord& record,
               const tensorflow::tpu::TPUCompileMetadataProto& metadata,
               absl::FunctionRef<absl::Status(LoweredModule*)> lower) {
  if (!GetMachineOptions().lowers_for_target) return;
  TargetProgram program;
  program.program_id = record.program_id;
  program.name = record.name;
  program.argument_shapes = record.argument_shapes;
  LoweredModule lowered;
  lowered.for_target = true;
  absl::Status status = lower(&lowered);
  if (status.ok()) status = DescribeForTarget(lowered, metadata, &program);
  if (!status.ok()) program.error = std::string(status.message());
  Process::Get().target_programs->Add(std::move(program));
}

}  // namespace tf_tpu_ext
