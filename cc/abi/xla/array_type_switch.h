// xla::primitive_util::ArrayTypeSwitch, which in 2.19 needs the type of its result as an argument.
#ifndef TF_TPU_EXT_CC_ABI_XLA_ARRAY_TYPE_SWITCH_H_
#define TF_TPU_EXT_CC_ABI_XLA_ARRAY_TYPE_SWITCH_H_

#include "absl/status/status.h"
#include "cc/abi/xla/minor.h"
#include "xla/primitive_util.h"

namespace tf_tpu_ext {

// Calls `body`, which returns a status, with the constant for an array's type.
template <typename Body>
absl::Status ArrayTypeSwitch(const Body& body, xla::PrimitiveType type) {
#if TF_TPU_EXT_TENSORFLOW_MINOR >= 20
  return xla::primitive_util::ArrayTypeSwitch(body, type);
#else
  return xla::primitive_util::ArrayTypeSwitch<absl::Status>(body, type);
#endif
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_ABI_XLA_ARRAY_TYPE_SWITCH_H_
