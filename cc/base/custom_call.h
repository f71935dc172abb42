// What custom calls share: how they are registered, made and executed, and buffers as tensors. It
// is written against XLA's FFI C interface: the C++ wrappers share names with classes that the
// wheel exports.
#ifndef TF_TPU_EXT_CC_BASE_CUSTOM_CALL_H_
#define TF_TPU_EXT_CC_BASE_CUSTOM_CALL_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/base/call_attributes.h"
#include "cc/base/core_context.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"
#include "xla/ffi/api/c_api.h"

namespace tf_tpu_ext {

// One custom call of one executable. XLA makes it when the executable is made, or read from a
// cache, and keeps it as long as the executable.
class CustomCall {
 public:
  virtual ~CustomCall() = default;

  // Executes the call. Runs of the executable may do so at the same time.
  virtual absl::Status Execute(XLA_FFI_CallFrame* frame) const = 0;
};

using CustomCallFactory =
    absl::StatusOr<std::unique_ptr<CustomCall>> (*)(const CallAttributes& attributes);

namespace internal {

using CustomCallHandler = XLA_FFI_Error* (*)(XLA_FFI_CallFrame*);

bool RegisterCustomCall(const char* target, CustomCallHandler instantiate);
XLA_FFI_Error* InstantiateCustomCall(XLA_FFI_CallFrame* frame, CustomCallFactory factory);

}  // namespace internal

// Has custom calls of that name made by `factory`. False for a name that is taken, which a second
// copy of this library would do.
template <CustomCallFactory factory>
bool RegisterCustomCall(const char* target) {
  return internal::RegisterCustomCall(target, [](XLA_FFI_CallFrame* frame) {
    return internal::InstantiateCustomCall(frame, factory);
  });
}

// The core that the program runs on; null if it is run by something else than this library.
CoreContext* CoreOf(const XLA_FFI_CallFrame& frame);

// A promise to XLA that a call will complete later.
class Completion : public std::enable_shared_from_this<Completion> {
 public:
  static absl::StatusOr<std::shared_ptr<Completion>> Create(XLA_FFI_CallFrame* frame);

  // Must be called exactly once.
  void Complete(const absl::Status& status);

 private:
  Completion(const XLA_FFI_Api* api, XLA_FFI_Future* future) : api_(api), future_(future) {}
  void SetFuture(const absl::Status& status);

  const XLA_FFI_Api* const api_;
  XLA_FFI_Future* const future_;
};

tensorflow::DataType ToTensorFlowType(XLA_FFI_DataType type);

tensorflow::TensorShape ShapeOf(const XLA_FFI_Buffer& buffer);

// Whether TensorFlow's kernels may read and write the memory in place.
bool IsAlignedForKernels(const void* data);

// A tensor in memory of the program, which is lent for the time of a call. Nobody will write to it.
// The memory must be aligned for kernels.
tensorflow::Tensor Borrow(const XLA_FFI_Buffer& buffer);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_CUSTOM_CALL_H_
