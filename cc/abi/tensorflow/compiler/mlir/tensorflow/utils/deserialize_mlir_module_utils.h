// The wheel's own header. The wheels of 2.19 and 2.20 lack it, but export the function.
#ifndef TF_TPU_EXT_CC_ABI_TENSORFLOW_DESERIALIZE_MLIR_MODULE_UTILS_H_
#define TF_TPU_EXT_CC_ABI_TENSORFLOW_DESERIALIZE_MLIR_MODULE_UTILS_H_

#if __has_include_next("tensorflow/compiler/mlir/tensorflow/utils/deserialize_mlir_module_utils.h")
#include_next "tensorflow/compiler/mlir/tensorflow/utils/deserialize_mlir_module_utils.h"
#else
#include "absl/status/status.h"
#include "llvm/ADT/StringRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace tensorflow {
absl::Status DeserializeMlirModule(llvm::StringRef serialized_mlir_module,
                                   mlir::MLIRContext* mlir_context,
                                   mlir::OwningOpRef<mlir::ModuleOp>* mlir_module);
}  // namespace tensorflow
#endif

#endif  // TF_TPU_EXT_CC_ABI_TENSORFLOW_DESERIALIZE_MLIR_MODULE_UTILS_H_
