// Compiles small programs faster: from 2.20 on, XLA emits fusions through MLIR, whose context takes
// longer to make than LLVM takes for such a program.
#ifndef TF_TPU_EXT_CC_ABI_XLA_LLVM_EMITTERS_H_
#define TF_TPU_EXT_CC_ABI_XLA_LLVM_EMITTERS_H_

#include "cc/abi/xla/minor.h"
#include "xla/xla.pb.h"

namespace tf_tpu_ext {

inline void UseLlvmEmitters(xla::DebugOptions* options) {
#if TF_TPU_EXT_TENSORFLOW_MINOR >= 20
  options->set_xla_cpu_use_fusion_emitters(false);
#endif
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_ABI_XLA_LLVM_EMITTERS_H_
