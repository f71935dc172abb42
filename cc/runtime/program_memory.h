// The memory of a program's runs.
#ifndef TF_TPU_EXT_CC_RUNTIME_PROGRAM_MEMORY_H_
#define TF_TPU_EXT_CC_RUNTIME_PROGRAM_MEMORY_H_

#include "cc/program/compilation_record.h"
#include "cc/program/compiled_program.h"

namespace tf_tpu_ext {

// The buffers that XLA has assigned to a run on one core, including the shared update that follows.
// Each replica of a group counts for its share.
ProgramMemory MemoryOfRun(const CompiledProgram& compiled);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_PROGRAM_MEMORY_H_
