// What handlers of custom calls share: errors, attributes, and buffers as tensors. It is written
// against XLA's FFI C interface: the C++ wrappers share names with classes that the wheel exports.
#ifndef TF_TPU_EXT_CC_BASE_CUSTOM_CALL_H_
#define TF_TPU_EXT_CC_BASE_CUSTOM_CALL_H_

#include <cstdint>
#include <memory>
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

// A promise to XLA that a call will complete later.
class Completion {
 public:
  static XLA_FFI_Error* Create(XLA_FFI_CallFrame* frame, std::shared_ptr<Completion>* completion);

  // Must be called exactly once.
  void Complete(const absl::Status& status);

 private:
  Completion(const XLA_FFI_Api* api, XLA_FFI_Future* future) : api_(api), future_(future) {}

  const XLA_FFI_Api* const api_;
  XLA_FFI_Future* const future_;
};

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

#endif  // TF_TPU_EXT_CC_BASE_CUSTOM_CALL_H_
