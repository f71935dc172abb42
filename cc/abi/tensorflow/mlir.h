// Functions of tensorflow/compiler/mlir that TensorFlow's library exports but its wheel declares in
// no header, or in one that can't be used as it is. What the wheel does declare is included from
// there, on top of the stand-ins in cc/abi/llvm and cc/abi/mlir.
#ifndef TF_TPU_EXT_CC_ABI_TENSORFLOW_MLIR_H_
#define TF_TPU_EXT_CC_ABI_TENSORFLOW_MLIR_H_

#include <string>

#include "absl/status/status.h"
#include "llvm/ADT/StringRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "tensorflow/c/tf_status.h"
#include "tensorflow/compiler/mlir/tf2xla/api/v2/tf_dialect_to_executor.h"

namespace tensorflow {

// For tensorflow/compiler/mlir/python/mlir.h, which the wheel lacks. Holds from 2.16 to 2.21.
std::string ExperimentalRunPassPipeline(const std::string& mlir_text, const std::string& pipeline,
                                        bool show_debug_info, TF_Status* status);

// From tensorflow/compiler/mlir/tf2xla/api/v2/graph_to_tf_executor.cc; no header declares it. Holds
// from 2.19, the first minor that exports MLIRContext, to 2.21.
namespace tf2xla::v2 {
void LoadImporterDialects(mlir::MLIRContext& context);
}  // namespace tf2xla::v2

}  // namespace tensorflow

namespace tf_tpu_ext {

// From 2.17 to 2.21, tensorflow/compiler/mlir/tf2xla/api/v2/tf_dialect_to_executor.h declares it
// deprecated in favor of a function that takes a graph; here there is only the module.
inline absl::Status ExportFromTensorflowDialectToExecutor(mlir::ModuleOp module,
                                                          llvm::StringRef module_name) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return tensorflow::tf2xla::v2::ExportFromTensorflowDialectToExecutor(module, module_name);
#pragma GCC diagnostic pop
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_ABI_TENSORFLOW_MLIR_H_
