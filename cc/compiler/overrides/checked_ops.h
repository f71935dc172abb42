// Ops whose stock XLA kernels trust unchecked shapes: they read out of bounds, or end the process.
//
// Each is replaced with an op of ours that has the same signature and checks the shapes first.
#ifndef TF_TPU_EXT_CC_COMPILER_OVERRIDES_CHECKED_OPS_H_
#define TF_TPU_EXT_CC_COMPILER_OVERRIDES_CHECKED_OPS_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def.pb.h"

namespace tf_tpu_ext {

inline constexpr char kCheckedPrefix[] = "TpuExt>Checked";

// Replaces a stock op with ours, if it is one of these ops.
void UseCheckedOp(tensorflow::NodeDef* node);

// Does the same in all functions.
absl::Status UseCheckedOps(tensorflow::FunctionLibraryDefinition* library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_OVERRIDES_CHECKED_OPS_H_
