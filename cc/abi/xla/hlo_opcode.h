// Opcodes that not every minor version has.
#ifndef TF_TPU_EXT_CC_ABI_XLA_HLO_OPCODE_H_
#define TF_TPU_EXT_CC_ABI_XLA_HLO_OPCODE_H_

#include "cc/abi/xla/minor.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace tf_tpu_ext {

inline bool IsScanOrScaledDot(xla::HloOpcode opcode) {
#if TF_TPU_EXT_TENSORFLOW_MINOR >= 21
  return opcode == xla::HloOpcode::kScan || opcode == xla::HloOpcode::kScaledDot;
#else
  return false;
#endif
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_ABI_XLA_HLO_OPCODE_H_
