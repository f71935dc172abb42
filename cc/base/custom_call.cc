#include "cc/base/custom_call.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "cc/abi/xla/collectives_wait.h"
#include "cc/abi/xla/ffi.h"
#include "cc/base/compute_pool.h"
#include "cc/base/process.h"
#include "cc/base/run_scope.h"
#include "xla/ffi/api/c_api_internal.h"
#include "xla/ffi/execution_context.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// The program's memory, borrowed for the duration of a call.
class BorrowedBuffer : public tensorflow::TensorBuffer {
 public:
  BorrowedBuffer(void* data, size_t bytes) : TensorBuffer(data), bytes_(bytes) {}
  size_t size() const override { return bytes_; }
  TensorBuffer* root_buffer() override { return this; }
  void FillAllocationDescription(
      tensorflow::AllocationDescription* /*description*/) const override {}
  // No kernel may reuse this memory for an output.
  bool OwnsMemory() const override { return false; }

 private:
  const size_t bytes_;
};

XLA_FFI_Error* MakeError(const XLA_FFI_Api* api, const absl::Status& status) {
  const std::string message(status.message());
  XLA_FFI_Error_Create_Args args;
  std::memset(&args, 0, sizeof(args));
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = message.c_str();
  args.errc = static_cast<XLA_FFI_Error_Code>(status.raw_code());
  return api->XLA_FFI_Error_Create(&args);
}

// The status of an XLA function. Takes ownership of the error.
absl::Status TakeError(const XLA_FFI_Api* api, XLA_FFI_Error* error) {
  if (error == nullptr) return absl::OkStatus();
  XLA_FFI_Error_GetMessage_Args message;
  std::memset(&message, 0, sizeof(message));
  message.struct_size = XLA_FFI_Error_GetMessage_Args_STRUCT_SIZE;
  message.error = error;
  api->XLA_FFI_Error_GetMessage(&message);
  const absl::Status status = absl::InternalError(message.message);
  XLA_FFI_Error_Destroy_Args args;
  std::memset(&args, 0, sizeof(args));
  args.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
  args.error = error;
  api->XLA_FFI_Error_Destroy(&args);
  return status;
}

void DeleteCall(void* call) { delete static_cast<CustomCall*>(call); }

// The type under which XLA keeps our calls. All targets share it: each call knows its own target.
absl::StatusOr<XLA_FFI_TypeId> RegisterStateType() {
  const XLA_FFI_Api* api = xla::ffi::GetXlaFfiApi();
  XLA_FFI_TypeId id;
  TF_RETURN_IF_ERROR(
      TakeError(api, RegisterFfiStateType(api, "tf_tpu_ext_custom_call", DeleteCall, &id)));
  return id;
}

const absl::StatusOr<XLA_FFI_TypeId>& StateType() {
  static const auto* const type = new absl::StatusOr<XLA_FFI_TypeId>(RegisterStateType());
  return *type;
}

// If the frame asks about the handler, rather than for a call, answers it and returns true.
bool AnswersMetadata(XLA_FFI_CallFrame* frame) {
  auto* extension = frame->extension_start;
  if (extension == nullptr || extension->type != XLA_FFI_Extension_Metadata) return false;
  XLA_FFI_Metadata* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
  metadata->api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  metadata->traits = 0;
  SetFfiStateType(StateType().ok() ? *StateType() : kUnknownFfiType, metadata);
  return true;
}

// Hands the call to XLA, which deletes it with the executable.
absl::Status HandOver(const XLA_FFI_CallFrame& frame, std::unique_ptr<CustomCall> call) {
  XLA_FFI_Error* error = SetFfiState(frame, *StateType(), call.get(), DeleteCall);
  TF_RETURN_IF_ERROR(TakeError(frame.api, error));
  call.release();  // NOLINT(bugprone-unused-return-value)
  return absl::OkStatus();
}

// The handler that executes the calls of all targets.
XLA_FFI_Error* ExecuteCustomCall(XLA_FFI_CallFrame* frame) {
  if (AnswersMetadata(frame)) return nullptr;
  XLA_FFI_TypeId type = *StateType();
  XLA_FFI_State_Get_Args args;
  std::memset(&args, 0, sizeof(args));
  args.struct_size = XLA_FFI_State_Get_Args_STRUCT_SIZE;
  args.ctx = frame->ctx;
  args.type_id = &type;
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_State_Get(&args)) return error;
  const absl::Status status = static_cast<const CustomCall*>(args.state)->Execute(frame);
  return status.ok() ? nullptr : MakeError(frame->api, status);
}

}  // namespace

namespace internal {

bool RegisterCustomCall(const char* target, CustomCallHandler instantiate) {
  constexpr absl::string_view kPlatform = "Host";
  if (!StateType().ok()) return false;
  const XLA_FFI_Api* api = xla::ffi::GetXlaFfiApi();
  XLA_FFI_Handler_Register_Args args;
  std::memset(&args, 0, sizeof(args));
  args.struct_size = XLA_FFI_Handler_Register_Args_STRUCT_SIZE;
  args.name = {target, std::strlen(target)};
  args.platform = {kPlatform.data(), kPlatform.size()};
  args.bundle.instantiate = instantiate;
  args.bundle.execute = ExecuteCustomCall;
  return TakeError(api, api->XLA_FFI_Handler_Register(&args)).ok();
}

XLA_FFI_Error* InstantiateCustomCall(XLA_FFI_CallFrame* frame, CustomCallFactory factory) {
  if (AnswersMetadata(frame)) return nullptr;
  absl::StatusOr<std::unique_ptr<CustomCall>> call = factory(CallAttributes(frame->attrs));
  const absl::Status status = call.ok() ? HandOver(*frame, *std::move(call)) : call.status();
  return status.ok() ? nullptr : MakeError(frame->api, status);
}

}  // namespace internal

DataType ToTensorFlowType(XLA_FFI_DataType type) {
  switch (type) {
    case XLA_FFI_DataType_PRED:
      return tensorflow::DT_BOOL;
    case XLA_FFI_DataType_S8:
      return tensorflow::DT_INT8;
    case XLA_FFI_DataType_S16:
      return tensorflow::DT_INT16;
    case XLA_FFI_DataType_S32:
      return tensorflow::DT_INT32;
    case XLA_FFI_DataType_S64:
      return tensorflow::DT_INT64;
    case XLA_FFI_DataType_U8:
      return tensorflow::DT_UINT8;
    case XLA_FFI_DataType_U16:
      return tensorflow::DT_UINT16;
    case XLA_FFI_DataType_U32:
      return tensorflow::DT_UINT32;
    case XLA_FFI_DataType_U64:
      return tensorflow::DT_UINT64;
    case XLA_FFI_DataType_F16:
      return tensorflow::DT_HALF;
    case XLA_FFI_DataType_BF16:
      return tensorflow::DT_BFLOAT16;
    case XLA_FFI_DataType_F32:
      return tensorflow::DT_FLOAT;
    case XLA_FFI_DataType_F64:
      return tensorflow::DT_DOUBLE;
    case XLA_FFI_DataType_C64:
      return tensorflow::DT_COMPLEX64;
    case XLA_FFI_DataType_C128:
      return tensorflow::DT_COMPLEX128;
    default:
      return tensorflow::DT_INVALID;
  }
}

absl::StatusOr<std::shared_ptr<Completion>> Completion::Create(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Future_Create_Args args;
  std::memset(&args, 0, sizeof(args));
  args.struct_size = XLA_FFI_Future_Create_Args_STRUCT_SIZE;
  TF_RETURN_IF_ERROR(TakeError(frame->api, frame->api->XLA_FFI_Future_Create(&args)));
  frame->future = args.future;
  return std::shared_ptr<Completion>(new Completion(frame->api, args.future, CoreOf(*frame)));
}

Completion::Completion(const XLA_FFI_Api* api, XLA_FFI_Future* future, const CoreContext* core)
    : api_(api), future_(future) {
  if (core == nullptr) return;
  run_id_ = core->run_id;
  core_in_pod_ = core->core_in_pod;
}

// XLA continues the program before it returns from this.
void Completion::Complete(const absl::Status& status) {
  if constexpr (kCollectivesWait) {
    // The program may wait in a collective for others that need this thread to get there.
    Process::Get().compute_pool->Schedule(
        [self = shared_from_this(), status] { self->SetFuture(status); });
  } else {
    SetFuture(status);
  }
}

void Completion::SetFuture(const absl::Status& status) {
  const RunScope scope(run_id_, core_in_pod_);
  if (status.ok()) {
    XLA_FFI_Future_SetAvailable_Args args;
    std::memset(&args, 0, sizeof(args));
    args.struct_size = XLA_FFI_Future_SetAvailable_Args_STRUCT_SIZE;
    args.future = future_;
    api_->XLA_FFI_Future_SetAvailable(&args);
  } else {
    XLA_FFI_Future_SetError_Args args;
    std::memset(&args, 0, sizeof(args));
    args.struct_size = XLA_FFI_Future_SetError_Args_STRUCT_SIZE;
    args.future = future_;
    args.error = MakeError(api_, status);
    api_->XLA_FFI_Future_SetError(&args);
  }
}

TensorShape ShapeOf(const XLA_FFI_Buffer& buffer) {
  TensorShape shape;
  for (int64_t d = 0; d < buffer.rank; ++d) shape.AddDim(buffer.dims[d]);
  return shape;
}

CoreContext* CoreOf(const XLA_FFI_CallFrame& frame) {
  const auto* context = static_cast<const xla::ffi::ExecutionContext*>(
      frame.api->internal_api->XLA_FFI_INTERNAL_ExecutionContext_Get(frame.ctx));
  if (context == nullptr) return nullptr;
  absl::StatusOr<CoreContext*> core = context->Lookup<CoreContext>();
  return core.ok() ? *core : nullptr;
}

bool IsAlignedForKernels(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % tensorflow::Allocator::kAllocatorAlignment == 0;
}

Tensor Borrow(const XLA_FFI_Buffer& buffer) {
  const DataType type = ToTensorFlowType(buffer.dtype);
  const TensorShape shape = ShapeOf(buffer);
  auto* borrowed =
      new BorrowedBuffer(buffer.data, shape.num_elements() * tensorflow::DataTypeSize(type));
  Tensor tensor(type, shape, borrowed);
  borrowed->Unref();
  return tensor;
}

}  // namespace tf_tpu_ext
