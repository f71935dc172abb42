// Numbers that tell the steps of programs apart.
#ifndef TF_TPU_EXT_CC_BASE_LAUNCH_NUMBERS_H_
#define TF_TPU_EXT_CC_BASE_LAUNCH_NUMBERS_H_

#include <cstdint>

#include "cc/base/number.h"

namespace tf_tpu_ext {

// Identifies a launch to its ops and to the host's side of its transfers. The iterations of a host
// loop share one. Counts from 1; 0 is no launch.
using LaunchId = Number<class LaunchTag, int64_t>;
// Identifies a launch to collectives: no two iterations share one.
using RunId = Number<class RunTag, int64_t>;

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_LAUNCH_NUMBERS_H_
