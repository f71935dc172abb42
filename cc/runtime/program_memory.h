// The memory of a program's runs.
#ifndef TF_TPU_EXT_CC_RUNTIME_PROGRAM_MEMORY_H_
#define TF_TPU_EXT_CC_RUNTIME_PROGRAM_MEMORY_H_

#include "cc/program/compilation_record.h"
#include "cc/program/compiled_program.h"

namespace tf_tpu_ext {

// What a run of one core needs, with the shared update that follows it: the buffers that XLA has
// assigned. Of a group of replicas each has its share.
ProgramMemory MemoryOfRun(const CompiledProgram& compiled);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_PROGRAM_MEMORY_H_
