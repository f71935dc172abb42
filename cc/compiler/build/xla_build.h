// Compiles an XLA computation to machine code.
#ifndef TF_TPU_EXT_CC_COMPILER_BUILD_XLA_BUILD_H_
#define TF_TPU_EXT_CC_COMPILER_BUILD_XLA_BUILD_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "cc/base/core_numbers.h"
#include "cc/base/number.h"
#include "cc/compiler/lower/lower_module.h"
#include "cc/program/compilation_record.h"
#include "cc/program/compiled_program.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"

namespace tf_tpu_ext {

// Builds the program `id` with the name in the record, and notes in the record how it was built.
absl::StatusOr<std::shared_ptr<const CompiledProgram>> BuildProgram(
    const LoweredModule& lowered, const tensorflow::tpu::TPUCompileMetadataProto& metadata,
    int64_t id, CompilationRecord* record);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_BUILD_XLA_BUILD_H_
