// Replaces xla/ffi/ffi_api.h, which needs MLIR's attributes: the wheel has no MLIR headers. Also
// hides what differs between versions in the state of handlers: from 2.21 on, a type has a deleter,
// and a handler names the type of its state; before, the deleter comes with each state.
#ifndef TF_TPU_EXT_CC_ABI_XLA_FFI_H_
#define TF_TPU_EXT_CC_ABI_XLA_FFI_H_

#include <cstring>

#include "absl/strings/string_view.h"
#include "cc/abi/xla/minor.h"
#include "xla/ffi/api/c_api.h"

namespace xla::ffi {

// XLA's side of the FFI's C interface. Holds from 2.19 to 2.21; the members of XLA_FFI_Api come
// from the wheel's own c_api.h.
const XLA_FFI_Api* GetXlaFfiApi();

}  // namespace xla::ffi

namespace tf_tpu_ext {

// XLA_FFI_UNKNOWN_TYPE_ID, which 2.19 has no name for.
inline constexpr XLA_FFI_TypeId kUnknownFfiType = {0};

// Whether XLA reports a second handler of a name. It keeps the first one in any case.
inline constexpr bool kSecondHandlerIsAnError = TF_TPU_EXT_TENSORFLOW_MINOR >= 21;

using FfiStateDeleter = void (*)(void* state);

// Returns null on success. `name` must not be that of another type.
inline XLA_FFI_Error* RegisterFfiStateType(const XLA_FFI_Api* api, absl::string_view name,
                                           FfiStateDeleter deleter, XLA_FFI_TypeId* id) {
  *id = kUnknownFfiType;
#if TF_TPU_EXT_TENSORFLOW_MINOR >= 21
  XLA_FFI_TypeInfo info;
  std::memset(&info, 0, sizeof(info));
  info.struct_size = XLA_FFI_TypeInfo_STRUCT_SIZE;
  info.deleter = deleter;
  XLA_FFI_Type_Register_Args args;
  std::memset(&args, 0, sizeof(args));
  args.struct_size = XLA_FFI_Type_Register_Args_STRUCT_SIZE;
  args.name = {name.data(), name.size()};
  args.type_id = id;
  args.type_info = &info;
  return api->XLA_FFI_Type_Register(&args);
#else
  XLA_FFI_TypeId_Register_Args args;
  std::memset(&args, 0, sizeof(args));
  args.struct_size = XLA_FFI_TypeId_Register_Args_STRUCT_SIZE;
  args.name = {name.data(), name.size()};
  args.type_id = id;
  return api->XLA_FFI_TypeId_Register(&args);
#endif
}

// Returns null on success: then XLA deletes the state with `deleter`, which must be that of its
// type.
inline XLA_FFI_Error* SetFfiState(const XLA_FFI_CallFrame& frame, XLA_FFI_TypeId type, void* state,
                                  FfiStateDeleter deleter) {
  XLA_FFI_State_Set_Args args;
  std::memset(&args, 0, sizeof(args));
  args.struct_size = XLA_FFI_State_Set_Args_STRUCT_SIZE;
  args.ctx = frame.ctx;
  args.type_id = &type;
  args.state = state;
#if TF_TPU_EXT_TENSORFLOW_MINOR < 21
  args.deleter = deleter;
#endif
  return frame.api->XLA_FFI_State_Set(&args);
}

inline void SetFfiStateType(XLA_FFI_TypeId type, XLA_FFI_Metadata* metadata) {
#if TF_TPU_EXT_TENSORFLOW_MINOR >= 21
  metadata->state_type_id = type;
#endif
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_ABI_XLA_FFI_H_
