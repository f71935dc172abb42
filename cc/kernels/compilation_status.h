// The compilation_status output of _TPUCompileMlir: a serialized
// tensorflow.tpu.CompilationResultProto, whose generated header the wheel does not ship.
#ifndef TF_TPU_EXT_CC_KERNELS_COMPILATION_STATUS_H_
#define TF_TPU_EXT_CC_KERNELS_COMPILATION_STATUS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tf_tpu_ext {

// Serializes fields status_code (1) and status_error_message (2).
std::string SerializeCompilationStatus(const absl::Status& status);

// The status in a serialized message; InvalidArgument if it is not one.
absl::Status ParseCompilationStatus(absl::string_view serialized);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_COMPILATION_STATUS_H_
