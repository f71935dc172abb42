// What custom calls have in common: registration, creation, execution, and buffers as tensors. It
// uses XLA's FFI C interface, because the C++ wrappers share names with classes that the wheel
// exports.
#ifndef TF_TPU_EXT_CC_BASE_CUSTOM_CALL_H_
#define TF_TPU_EXT_CC_BASE_CUSTOM_CALL_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/base/call_attributes.h"
#include "cc/base/core_context.h"
#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"
#include "xla/ffi/api/c_api.h"

namespace tf_tpu_ext {

// One custom call of one executable. XLA makes it when the executable is built or read from a
// cache, and keeps it for as long as the executable.
class CustomCall {
 public:
  virtual ~CustomCall() = default;

  // Executes the call. Several runs of the executable may do so at the same time.
  virtual absl::Status Execute(XLA_FFI_CallFrame* frame) const = 0;
};

using CustomCallFactory =
    absl::StatusOr<std::unique_ptr<CustomCall>> (*)(const CallAttributes& attributes);

namespace internal {

using CustomCallHandler = XLA_FFI_Error* (*)(XLA_FFI_CallFrame*);

bool RegisterCustomCall(const char* target, CustomCallHandler instantiate);
XLA_FFI_Error* InstantiateCustomCall(XLA_FFI_CallFrame* frame, CustomCallFactory factory);

}  // namespace internal

// Makes `factory` create the custom calls of that name. Returns false if the name is taken, which
// means that a second copy of this library is loaded.
template <CustomCallFactory factory>
bool RegisterCustomCall(const char* target) {
  return internal::RegisterCustomCall(target, [](XLA_FFI_CallFrame* frame) {
    return internal::InstantiateCustomCall(frame, factory);
  });
}

// The core that the program runs on; null if something other than this library runs it.
CoreContext* CoreOf(const XLA_FFI_CallFrame& frame);

// A promise to XLA that a call completes later.
class Completion : public std::enable_shared_from_this<Completion> {
 public:
  static absl::StatusOr<std::shared_ptr<Completion>> Create(XLA_FFI_CallFrame* frame);

  // Must be called exactly once.
  void Complete(const absl::Status& status);

 private:
  Completion(const XLA_FFI_Api* api, XLA_FFI_Future* future, const CoreContext* core);
  void SetFuture(const absl::Status& status);

  const XLA_FFI_Api* const api_;
  XLA_FFI_Future* const future_;
  // Not the context itself, which is gone when the program has ended.
  RunId run_id_;
  Core core_in_pod_;
};

tensorflow::DataType ToTensorFlowType(XLA_FFI_DataType type);

tensorflow::TensorShape ShapeOf(const XLA_FFI_Buffer& buffer);

// Whether TensorFlow's kernels may read and write the memory in place.
bool IsAlignedForKernels(const void* data);

// A tensor in the program's memory, borrowed for the duration of a call. No kernel reuses it for an
// output. The memory must be aligned for kernels.
tensorflow::Tensor Borrow(const XLA_FFI_Buffer& buffer);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_CUSTOM_CALL_H_
