// What the collectives and reductions of a program do, where it is one of the usual things.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_COLLECTIVE_PATTERNS_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_COLLECTIVE_PATTERNS_H_

#include <optional>

#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/hlo/ir/replica_group.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {

// Whether the collective is one of all replicas, in their order.
bool MeetsAllReplicas(const xla::HloInstruction& collective, int num_replicas);

// Of a collective of so many replicas, all of its program.
xla::CollectiveDeviceList AllReplicas(int num_replicas);

// The opcode by which a reducer combines its two parameters, of type `type`; nothing if it does
// more.
std::optional<xla::HloOpcode> ReducerOpcode(const xla::HloComputation& reducer,
                                            xla::PrimitiveType type);

// Whether it is a reduction or scatter that adds to zero.
bool AddsToZero(const xla::HloInstruction& instruction);

// The first replica's value, known to all replicas, as the aggregation ONLY_FIRST_REPLICA makes it:
// slice [0:1] of an all-to-all of as many times the same value. Returns the instruction that is
// sent, or null if `slice` is something else.
const xla::HloInstruction* FirstReplicasValue(const xla::HloInstruction& slice, int num_replicas);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_COLLECTIVE_PATTERNS_H_
