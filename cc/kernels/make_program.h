// From a lowered module to a program that can run.
#ifndef TF_TPU_EXT_CC_KERNELS_MAKE_PROGRAM_H_
#define TF_TPU_EXT_CC_KERNELS_MAKE_PROGRAM_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "cc/compiler/lower/lower_module.h"
#include "cc/program/compilation_record.h"
#include "cc/runtime/program.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"

namespace tf_tpu_ext {

// Makes the program `id`, with the record's name, and notes in the record how it was made and how
// long that took.
absl::StatusOr<std::shared_ptr<Program>> MakeProgram(
    const LoweredModule& lowered, const tensorflow::tpu::TPUCompileMetadataProto& metadata,
    int64_t id, CompilationRecord* record);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_MAKE_PROGRAM_H_
