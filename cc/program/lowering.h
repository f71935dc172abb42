// What XLA kernels need to know about the program that they lower, which tf2xla itself does not
// know.
#ifndef TF_TPU_EXT_CC_PROGRAM_LOWERING_H_
#define TF_TPU_EXT_CC_PROGRAM_LOWERING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace tf_tpu_ext {

// The tf2xla device whose kernels lower programs for a real TPU.
inline constexpr char kTargetCompilationDevice[] = "XLA_TPU_JIT";

struct Lowering {
  // How many replicas the program will run on. With this, a kernel can reject wrong replica groups
  // and name the op that has them. A function compiled by jit_compile runs on one.
  int64_t replicas = 1;
  // Whether the program is lowered for a real TPU's compiler, and not run here.
  bool for_target = false;
  // How many cores each replica has.
  int64_t cores_per_replica = 1;
};

// Passes `lowering` to a compilation device. For use in
// tensorflow::XlaCompiler::Options::populate_resource_manager.
absl::Status SetLowering(const Lowering& lowering, tensorflow::ResourceMgr* manager);

// What SetLowering has passed, or the default.
Lowering GetLowering(tensorflow::ResourceMgr* manager);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_LOWERING_H_
