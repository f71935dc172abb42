// Finds the instructions of an HLO computation by the ids that others refer to them by.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_INSTRUCTION_TABLE_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_INSTRUCTION_TABLE_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "xla/service/hlo.pb.h"

namespace tf_tpu_ext {

// An instruction's number within its computation. The upper half of an id is the computation's;
// operands are told without it.
inline int32_t LocalId(int64_t id) { return static_cast<int32_t>(id); }

// The computation's instructions by local id.
using InstructionTable = absl::flat_hash_map<int32_t, const xla::HloInstructionProto*>;

InstructionTable InstructionsOf(const xla::HloComputationProto& computation);

// A local id past those of all computations and instructions.
int32_t FirstFreeId(const xla::HloModuleProto& module);

// Of an array's shape.
int64_t NumElements(const xla::ShapeProto& shape);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_INSTRUCTION_TABLE_H_
