// Asks the compiler of a real TPU about a program.
#ifndef TF_TPU_EXT_CC_KERNELS_ASK_TARGET_H_
#define TF_TPU_EXT_CC_KERNELS_ASK_TARGET_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cc/compiler/lower/lower_module.h"
#include "cc/program/compilation_record.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"

namespace tf_tpu_ext {

// If the machine has a target, lowers the program for it by `lower`, and queues it for the
// question. What goes wrong is told with the program's verdict: it is no error of the program here.
void AskTarget(const CompilationRecord& record,
               const tensorflow::tpu::TPUCompileMetadataProto& metadata,
               absl::FunctionRef<absl::Status(LoweredModule*)> lower);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_ASK_TARGET_H_
