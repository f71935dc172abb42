#include "cc/base/custom_call.h"

#include <cstring>

#include "xla/ffi/api/c_api_internal.h"

namespace xla::ffi {
const XLA_FFI_Api* GetXlaFfiApi();
}  // namespace xla::ffi

namespace tf_tpu_ext {
namespace {

using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Memory of the program, lent for the time of a call.
class BorrowedBuffer : public tensorflow::TensorBuffer {
 public:
  BorrowedBuffer(void* data, size_t bytes) : TensorBuffer(data), bytes_(bytes) {}
  size_t size() const override { return bytes_; }
  TensorBuffer* root_buffer() override { return this; }
  void FillAllocationDescription(
      tensorflow::AllocationDescription* /*description*/) const override {}
  // Nobody may write its outputs here.
  bool OwnsMemory() const override { return false; }

 private:
  const size_t bytes_;
};

}  // namespace

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

XLA_FFI_Error* MakeError(const XLA_FFI_Api* api, const absl::Status& status) {
  const std::string message(status.message());
  XLA_FFI_Error_Create_Args args;
  std::memset(&args, 0, sizeof(args));
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = message.c_str();
  args.errc = static_cast<XLA_FFI_Error_Code>(status.raw_code());
  return api->XLA_FFI_Error_Create(&args);
}

XLA_FFI_Error* Completion::Create(XLA_FFI_CallFrame* frame,
                                  std::shared_ptr<Completion>* completion) {
  XLA_FFI_Future_Create_Args args;
  std::memset(&args, 0, sizeof(args));
  args.struct_size = XLA_FFI_Future_Create_Args_STRUCT_SIZE;
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_Future_Create(&args)) return error;
  frame->future = args.future;
  completion->reset(new Completion(frame->api, args.future));
  return nullptr;
}

void Completion::Complete(const absl::Status& status) {
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

std::string StringAttribute(const XLA_FFI_Attrs& attributes, absl::string_view name) {
  for (int64_t i = 0; i < attributes.size; ++i) {
    if (absl::string_view(attributes.names[i]->ptr, attributes.names[i]->len) != name) continue;
    if (attributes.types[i] != XLA_FFI_AttrType_STRING) break;
    const auto* value = static_cast<const XLA_FFI_ByteSpan*>(attributes.attrs[i]);
    return std::string(value->ptr, value->len);
  }
  return "";
}

int64_t IntegerAttribute(const XLA_FFI_Attrs& attributes, absl::string_view name) {
  for (int64_t i = 0; i < attributes.size; ++i) {
    if (attributes.types[i] != XLA_FFI_AttrType_SCALAR) continue;
    if (absl::string_view(attributes.names[i]->ptr, attributes.names[i]->len) != name) continue;
    const auto* scalar = static_cast<const XLA_FFI_Scalar*>(attributes.attrs[i]);
    if (scalar->dtype == XLA_FFI_DataType_S64) return *static_cast<const int64_t*>(scalar->value);
  }
  return -1;
}

TensorShape ShapeOf(const XLA_FFI_Buffer& buffer) {
  TensorShape shape;
  for (int64_t d = 0; d < buffer.rank; ++d) shape.AddDim(buffer.dims[d]);
  return shape;
}

bool RegisterCustomCall(const char* target, CustomCallHandler handler) {
  constexpr absl::string_view kPlatform = "Host";
  const XLA_FFI_Api* api = xla::ffi::GetXlaFfiApi();
  XLA_FFI_Handler_Register_Args args;
  std::memset(&args, 0, sizeof(args));
  args.struct_size = XLA_FFI_Handler_Register_Args_STRUCT_SIZE;
  args.name = {target, std::strlen(target)};
  args.platform = {kPlatform.data(), kPlatform.size()};
  args.bundle.execute = handler;
  return api->XLA_FFI_Handler_Register(&args) == nullptr;
}

bool AnswersMetadata(XLA_FFI_CallFrame* frame) {
  auto* extension = frame->extension_start;
  if (extension == nullptr || extension->type != XLA_FFI_Extension_Metadata) return false;
  XLA_FFI_Metadata* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
  metadata->api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  metadata->traits = 0;
  metadata->state_type_id = XLA_FFI_UNKNOWN_TYPE_ID;
  return true;
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
