#ifndef TF_TPU_EXT_CC_ABI_MLIR_PASS_PASS_H_
#define TF_TPU_EXT_CC_ABI_MLIR_PASS_PASS_H_
#include "mlir/IR/BuiltinOps.h"
#endif  // TF_TPU_EXT_CC_ABI_MLIR_PASS_PASS_H_
