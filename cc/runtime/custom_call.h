// What handlers of custom calls share: errors, attributes, and buffers as tensors. It is written
// against XLA's FFI C interface: the C++ wrappers share names with classes that the wheel exports.
#ifndef TF_TPU_EXT_CC_RUNTIME_CUSTOM_CALL_H_
#define TF_TPU_EXT_CC_RUNTIME_CUSTOM_CALL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"
#include "xla/ffi/api/c_api.h"

namespace tf_tpu_ext {

using CustomCallHandler = XLA_FFI_Error* (*)(XLA_FFI_CallFrame*);

// Registers a handler of custom calls of that name. `execute` runs the calls; a handler that it is
// wrapped in answers XLA's other questions by AnswersMetadata. False for a name that is taken,
// which a second copy of this library would do.
bool RegisterCustomCall(const char* target, CustomCallHandler handler);

// Whether the frame asked what the handler is, not for a call; it is then answered.
bool AnswersMetadata(XLA_FFI_CallFrame* frame);

XLA_FFI_Error* MakeError(const XLA_FFI_Api* api, const absl::Status& status);

// Empty if there is none of that name.
std::string StringAttribute(const XLA_FFI_Attrs& attributes, absl::string_view name);

// -1 if there is none of that name.
int64_t IntegerAttribute(const XLA_FFI_Attrs& attributes, absl::string_view name);

tensorflow::DataType ToTensorFlowType(XLA_FFI_DataType type);

tensorflow::TensorShape ShapeOf(const XLA_FFI_Buffer& buffer);

// Whether TensorFlow's kernels may read and write the memory in place.
bool IsAlignedForKernels(const void* data);

// A tensor in memory of the program, which is lent for the time of a call. Nobody will write to it.
// The memory must be aligned for kernels.
tensorflow::Tensor Borrow(const XLA_FFI_Buffer& buffer);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_CUSTOM_CALL_H_
