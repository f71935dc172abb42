// For xla/ffi/ffi_api.h, which needs MLIR's attributes: the wheel has no headers of MLIR.
#ifndef TF_TPU_EXT_CC_ABI_XLA_FFI_H_
#define TF_TPU_EXT_CC_ABI_XLA_FFI_H_

#include "xla/ffi/api/c_api.h"

namespace xla::ffi {

// XLA's side of the FFI's C interface. Holds from 2.19 to 2.21; the members of XLA_FFI_Api come
// from the wheel's own c_api.h.
const XLA_FFI_Api* GetXlaFfiApi();

}  // namespace xla::ffi

#endif  // TF_TPU_EXT_CC_ABI_XLA_FFI_H_
