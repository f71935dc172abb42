// Tells XLA kernels that a program is lowered for the compiler of a real TPU, not to be run here:
// tf2xla itself does not know.
#ifndef TF_TPU_EXT_CC_PROGRAM_LOWERING_TARGET_H_
#define TF_TPU_EXT_CC_PROGRAM_LOWERING_TARGET_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace tf_tpu_ext {

// The tf2xla device whose kernels lower programs for a real TPU.
inline constexpr char kTargetCompilationDevice[] = "XLA_TPU_JIT";

// Notes it with a compilation device. For
// tensorflow::XlaCompiler::Options::populate_resource_manager.
absl::Status SetLowersForTarget(tensorflow::ResourceMgr* manager);

bool LowersForTarget(tensorflow::ResourceMgr* manager);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_LOWERING_TARGET_H_
