#include "cc/runtime/program_memory.h"

#include <algorithm>
#include <cstdint>

#include "xla/service/buffer_assignment.h"
#include "xla/service/cpu/cpu_executable.h"

namespace tf_tpu_ext {

ProgramMemory MemoryOfRun(const CompiledProgram& compiled) {
  if (compiled.batched != nullptr) {
    ProgramMemory memory = MemoryOfRun(*compiled.batched->program);
    for (int64_t* bytes : {&memory.arguments, &memory.results, &memory.temporaries}) {
      *bytes /= std::max(1, compiled.batched->group_size);
    }
    return memory;
  }
  ProgramMemory memory;
  if (compiled.executable == nullptr) return memory;
  const auto& of_cpu = static_cast<const xla::cpu::CpuExecutable&>(*compiled.executable);
  for (const xla::BufferAllocation& allocation : of_cpu.buffer_assignment().Allocations()) {
    if (allocation.is_entry_computation_parameter()) {
      memory.arguments += allocation.size();
    } else if (allocation.maybe_live_out()) {
      memory.results += allocation.size();
    } else if (!allocation.is_constant() && !allocation.is_thread_local()) {
      memory.temporaries += allocation.size();
    }
  }
  if (compiled.shared_update != nullptr) {
    const ProgramMemory update = MemoryOfRun(*compiled.shared_update->program);
    memory.temporaries = std::max(memory.temporaries, update.temporaries);
  }
  return memory;
}

}  // namespace tf_tpu_ext
