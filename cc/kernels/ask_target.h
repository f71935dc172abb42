// Asks a real TPU's compiler about a program.
#ifndef TF_TPU_EXT_CC_KERNELS_ASK_TARGET_H_
#define TF_TPU_EXT_CC_KERNELS_ASK_TARGET_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cc/compiler/lower/lower_module.h"
#include "cc/program/compilation_record.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"

namespace tf_tpu_ext {

// If the machine has a target, lowers the program for it with `lower` and queues it for that
// compiler. Errors are reported in the program's verdict; they don't make the program fail here.
void AskTarget(const CompilationRecord& record,
               const tensorflow::tpu::TPUCompileMetadataProto& metadata,
               absl::FunctionRef<absl::Status(LoweredModule*)> lower);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_ASK_TARGET_H_
