// Tells the XLA kernels how many replicas the program being compiled will run on: tf2xla itself
// does not know. A kernel can then refuse wrong replica groups and name the op that has them.
#ifndef TF_TPU_EXT_CC_COMPILER_LOWER_PROGRAM_REPLICAS_H_
#define TF_TPU_EXT_CC_COMPILER_LOWER_PROGRAM_REPLICAS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace tf_tpu_ext {

// Records `num_replicas` with a compilation device. For
// tensorflow::XlaCompiler::Options::populate_resource_manager.
absl::Status SetProgramReplicas(tensorflow::ResourceMgr* manager, int64_t num_replicas);

// What SetProgramReplicas recorded, or 1: a function compiled by jit_compile runs on one replica.
int64_t GetProgramReplicas(tensorflow::ResourceMgr* manager);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_LOWER_PROGRAM_REPLICAS_H_
