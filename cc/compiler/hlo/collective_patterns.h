// Recognizes common patterns of collectives and reductions in a program.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_COLLECTIVE_PATTERNS_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_COLLECTIVE_PATTERNS_H_

#include <optional>

#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/hlo/ir/replica_group.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {

// Whether all replicas take part in the collective, in order.
bool MeetsAllReplicas(const xla::HloInstruction& collective, int num_replicas);

// The device list of a collective in which all `num_replicas` replicas of its program take part.
xla::CollectiveDeviceList AllReplicas(int num_replicas);

// The opcode with which a reducer combines its two parameters of type `type`, or nothing if it does
// more than that.
std::optional<xla::HloOpcode> ReducerOpcode(const xla::HloComputation& reducer,
                                            xla::PrimitiveType type);

// Whether the instruction is a reduction or scatter that adds to zero.
bool AddsToZero(const xla::HloInstruction& instruction);

// Recognizes how the aggregation ONLY_FIRST_REPLICA sends the first replica's value to all
// replicas: slice [0:1] of an all-to-all of that many copies of one value. Returns the instruction
// that is sent, or null if `slice` is something else.
const xla::HloInstruction* FirstReplicasValue(const xla::HloInstruction& slice, int num_replicas);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_COLLECTIVE_PATTERNS_H_
