// The collectives of a program, and their order.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_COLLECTIVE_ORDER_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_COLLECTIVE_ORDER_H_

#include "absl/status/status.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// Whether any computation of the module has a collective.
bool HasCollectives(const xla::HloModule& module);

// Chains the collectives of each computation, and the loops, branches and calls that contain some,
// by control dependencies in the module's order. XLA orders independent collectives as it likes.
// That makes no difference to replicas that run one program, but replicas that were compiled for
// different shapes would meet in different collectives.
absl::Status OrderCollectives(xla::HloModule* module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_COLLECTIVE_ORDER_H_
