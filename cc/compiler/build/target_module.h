// Prepares a program that was lowered for a real TPU for the TPU's compiler.
#ifndef TF_TPU_EXT_CC_COMPILER_BUILD_TARGET_MODULE_H_
#define TF_TPU_EXT_CC_COMPILER_BUILD_TARGET_MODULE_H_

#include "absl/status/status.h"
#include "cc/compiler/lower/lower_module.h"
#include "cc/program/target_program.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"

namespace tf_tpu_ext {

// Fills in the module and options of the program. Applies none of our passes to the module:
// replicas stay separate, chains uncut, sizes dynamic. Variables share memory with their new
// values.
absl::Status DescribeForTarget(const LoweredModule& lowered,
                               const tensorflow::tpu::TPUCompileMetadataProto& metadata,
                               TargetProgram* program);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_BUILD_TARGET_MODULE_H_
