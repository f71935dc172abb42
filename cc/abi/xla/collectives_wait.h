// Whether a collective of xla::Communicator blocks its thread until it has ended, as in 2.19.
#ifndef TF_TPU_EXT_CC_ABI_XLA_COLLECTIVES_WAIT_H_
#define TF_TPU_EXT_CC_ABI_XLA_COLLECTIVES_WAIT_H_

#include "cc/abi/xla/minor.h"

namespace tf_tpu_ext {

inline constexpr bool kCollectivesWait = TF_TPU_EXT_TENSORFLOW_MINOR < 20;

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_ABI_XLA_COLLECTIVES_WAIT_H_
