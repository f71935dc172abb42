// What a program's instructions do beyond their replica, read from its HLO.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_COLLECTIVE_PATTERNS_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_COLLECTIVE_PATTERNS_H_

#include <string>

#include "cc/compiler/hlo/instruction_table.h"
#include "xla/service/hlo.pb.h"

namespace tf_tpu_ext {

// Whether the instruction acts on more than its replica, or on the host, or sees where it runs.
bool Communicates(const xla::HloInstructionProto& instruction);

// Whether its value is new each time.
bool IsRandom(const xla::HloInstructionProto& instruction);

// Whether the instruction's collective is one of all replicas.
bool MeetsAllReplicas(const xla::HloInstructionProto& collective, int num_replicas);

// Makes the instruction's collective one of so many replicas, all of its program.
void MeetReplicas(int num_replicas, xla::HloInstructionProto* collective);

// The opcode by which a reducer combines its two parameters, of type `type`; empty if it does
// more.
std::string ReducerOpcode(const xla::HloComputationProto& reducer, xla::PrimitiveType type);

// The first replica's value, known to all replicas, as the aggregation ONLY_FIRST_REPLICA makes it:
// slice [0:1] of an all-to-all of as many times the same value. Returns the instruction that is
// sent, or null if `slice` is something else.
const xla::HloInstructionProto* FirstReplicasValue(const xla::HloInstructionProto& slice,
                                                   const InstructionTable& instructions,
                                                   int num_replicas);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_COLLECTIVE_PATTERNS_H_
