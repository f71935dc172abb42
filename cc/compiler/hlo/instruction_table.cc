#include "cc/compiler/hlo/instruction_table.h"

#include <algorithm>

namespace tf_tpu_ext {

InstructionTable InstructionsOf(const xla::HloComputationProto& computation) {
  InstructionTable instructions;
  instructions.reserve(computation.instructions_size());
  for (const xla::HloInstructionProto& instruction : computation.instructions()) {
    instructions[LocalId(instruction.id())] = &instruction;
  }
  return instructions;
}

int32_t FirstFreeId(const xla::HloModuleProto& module) {
  int32_t last = 0;
  for (const xla::HloComputationProto& computation : module.computations()) {
    last = std::max(last, LocalId(computation.id()));
    for (const xla::HloInstructionProto& instruction : computation.instructions()) {
      last = std::max(last, LocalId(instruction.id()));
    }
  }
  return last + 1;
}

int64_t NumElements(const xla::ShapeProto& shape) {
  int64_t elements = 1;
  for (int64_t size : shape.dimensions()) elements *= size;
  return elements;
}

}  // namespace tf_tpu_ext
