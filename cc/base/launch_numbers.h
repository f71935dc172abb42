// What tells steps of programs apart.
#ifndef TF_TPU_EXT_CC_BASE_LAUNCH_NUMBERS_H_
#define TF_TPU_EXT_CC_BASE_LAUNCH_NUMBERS_H_

#include <cstdint>

#include "cc/base/number.h"

namespace tf_tpu_ext {

// Names a launch to its ops and to the host's side of its transfers. The rounds of a host loop
// share one. Counts from 1: 0 is no launch.
using LaunchId = Number<class LaunchTag, int64_t>;
// Names a launch to collectives: no two rounds share one.
using RunId = Number<class RunTag, int64_t>;

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_LAUNCH_NUMBERS_H_
