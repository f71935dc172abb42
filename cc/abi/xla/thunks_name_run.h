// Whether XLA's events of ops in a profile say which run they belong to.
#ifndef TF_TPU_EXT_CC_ABI_XLA_THUNKS_NAME_RUN_H_
#define TF_TPU_EXT_CC_ABI_XLA_THUNKS_NAME_RUN_H_

#include "cc/abi/xla/minor.h"

namespace tf_tpu_ext {

inline constexpr bool kThunksNameRun = TF_TPU_EXT_TENSORFLOW_MINOR >= 21;

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_ABI_XLA_THUNKS_NAME_RUN_H_
