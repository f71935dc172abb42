// Ops whose stock XLA kernels trust shapes that nothing has checked, and read past their ends.
//
// Each becomes an op of ours with the same signature, whose kernel checks first.
#ifndef TF_TPU_EXT_CC_COMPILER_OVERRIDES_CHECKED_OPS_H_
#define TF_TPU_EXT_CC_COMPILER_OVERRIDES_CHECKED_OPS_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def.pb.h"

namespace tf_tpu_ext {

inline constexpr char kCheckedPrefix[] = "TpuExt>Checked";

// Puts our op in place of the stock one, if this is one of them.
void UseCheckedOp(tensorflow::NodeDef* node);

// The same in all functions.
absl::Status UseCheckedOps(tensorflow::FunctionLibraryDefinition* library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_OVERRIDES_CHECKED_OPS_H_
