#include "cc/runtime/program.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/abi/xla/cpu_executable.h"
#include "cc/runtime/padding_stats.h"
#include "cc/runtime/program_run.h"
#include "cc/transfer/host_functions.h"
#include "xla/service/buffer_assignment.h"
#include "xla/service/cpu/cpu_executable.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

// The memory of one instruction of the module with everything that XLA keeps for it, except its
// machine code. Measured on models, where it ranges from 1.5 to 4 KB.
constexpr int64_t kBytesPerInstruction = 3 << 10;

int64_t SizeInMemory(const xla::Executable& executable) {
  int64_t bytes = 0;
  if (executable.has_module()) {
    bytes += executable.module().instruction_count() * kBytesPerInstruction;
  }
  const auto& of_cpu = static_cast<const xla::cpu::CpuExecutable&>(executable);
  bytes += BytesOfCode(of_cpu);
  for (const xla::BufferAllocation& allocation : of_cpu.buffer_assignment().Allocations()) {
    if (allocation.is_constant()) bytes += allocation.size();
  }
  return bytes;
}

}  // namespace

int64_t SizeInMemory(const CompiledProgram& compiled) {
  int64_t bytes = 0;
  if (compiled.executable != nullptr) bytes += SizeInMemory(*compiled.executable);
  if (compiled.shared_update != nullptr) bytes += SizeInMemory(*compiled.shared_update->program);
  if (compiled.batched != nullptr) bytes += SizeInMemory(*compiled.batched->program);
  return bytes;
}

absl::StatusOr<std::shared_ptr<Program>> Program::Create(
    const ProgramServices& services, std::shared_ptr<const CompiledProgram> compiled) {
  TF_ASSIGN_OR_RETURN(Parts parts, CreateParts(services, *compiled));
  std::shared_ptr<Program> program(new Program(services, std::move(compiled), std::move(parts)));
  // Otherwise it has no executable, because the groups run in its place.
  if (program->batched() == nullptr) {
    TF_ASSIGN_OR_RETURN(program->layout_, ResultLayout::Of(program->compiled()));
  }
  return program;
}

absl::StatusOr<Program::Parts> Program::CreateParts(const ProgramServices& services,
                                                    const CompiledProgram& compiled) {
  Parts parts;
  if (!compiled.host_functions.empty()) {
    TF_ASSIGN_OR_RETURN(parts.host_functions,
                        HostFunctions::Create(compiled.host_functions, compiled.num_slots(),
                                              services.host_threads, services.transfer_stats));
  }
  if (compiled.shared_update != nullptr) {
    TF_ASSIGN_OR_RETURN(parts.shared_update, Create(services, compiled.shared_update->program));
  }
  if (compiled.batched != nullptr) {
    TF_ASSIGN_OR_RETURN(parts.batched, Create(services, compiled.batched->program));
  }
  return parts;
}

void Program::Start(CoreContext core, Arguments arguments, RunOptions options, Done done) {
  if (!compiled_->padded_arguments.empty()) {
    services_.padding->Count(compiled_->id, compiled_->padded_arguments, arguments);
  }
  Run::Start(
      std::make_shared<Run>(this, core, std::move(arguments), std::move(options), std::move(done)));
}

void Program::RecordRun(absl::Duration time) {
  const int64_t taken = absl::ToInt64Nanoseconds(time);
  const int64_t before = typical_nanoseconds_.load(std::memory_order_relaxed);
  // Concurrent runs may miss each other's values, because this is only an estimate.
  typical_nanoseconds_.store(before < 0 ? taken : (3 * before + taken) / 4,
                             std::memory_order_relaxed);
}

void Program::Recycle(std::vector<tensorflow::Tensor> combined_outputs) {
  combined_outputs_.Keep(std::move(combined_outputs));
}

absl::StatusOr<std::shared_ptr<Program>> Program::Alone() {
  absl::MutexLock building(&building_);
  if (std::shared_ptr<Program> built = AloneIfBuilt()) return built;
  TF_ASSIGN_OR_RETURN(std::shared_ptr<Program> built, BuildAlone());
  absl::MutexLock lock(&mutex_);
  alone_ = built;
  return built;
}

absl::StatusOr<std::shared_ptr<Program>> Program::BuildAlone() const {
  TF_ASSIGN_OR_RETURN(std::shared_ptr<const CompiledProgram> compiled,
                      compiled_->batched->build_alone());
  return Create(services_, std::move(compiled));
}

std::shared_ptr<Program> Program::AloneIfBuilt() {
  absl::MutexLock lock(&mutex_);
  return alone_;
}

absl::StatusOr<Slot> Program::SlotOfCore(Core core) const {
  if (compiled_->cores.empty()) return Slot(0);
  for (Slot slot : compiled_->cores.numbers()) {
    if (compiled_->cores[slot] == core) return slot;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("Program ", compiled_->name, " was compiled for the cores [",
                   absl::StrJoin(compiled_->cores, ", "), "] and was sent to core ", core,
                   ". Compile it with a device assignment that has this core."));
}

}  // namespace tf_tpu_ext
