// What XLA kernels are told of the program that they lower: tf2xla itself does not know.
#ifndef TF_TPU_EXT_CC_PROGRAM_LOWERING_H_
#define TF_TPU_EXT_CC_PROGRAM_LOWERING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace tf_tpu_ext {

// The tf2xla device whose kernels lower programs for a real TPU.
inline constexpr char kTargetCompilationDevice[] = "XLA_TPU_JIT";

struct Lowering {
  // How many replicas the program will run on. A kernel can then refuse wrong replica groups and
  // name the op that has them. A function compiled by jit_compile runs on one.
  int64_t replicas = 1;
  // Whether it is lowered for the compiler of a real TPU, not to be run here.
  bool for_target = false;
  // How many cores each of them has.
  int64_t cores_per_replica = 1;
};

// Tells it to a compilation device. For
// tensorflow::XlaCompiler::Options::populate_resource_manager.
absl::Status SetLowering(const Lowering& lowering, tensorflow::ResourceMgr* manager);

// What SetLowering told, or the default.
Lowering GetLowering(tensorflow::ResourceMgr* manager);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_LOWERING_H_
