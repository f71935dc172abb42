// Connects, in a profile, the op that brings a core to a launch with what the core runs there.
#ifndef TF_TPU_EXT_CC_PROFILE_LAUNCH_CONTEXT_H_
#define TF_TPU_EXT_CC_PROFILE_LAUNCH_CONTEXT_H_

#include <cstdint>

#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"
#include "cc/base/machine.h"

namespace tf_tpu_ext {

// The number that both carry, with the type ContextType::kTpuLaunch.
inline uint64_t LaunchContext(RunId run_id, Core core) {
  return static_cast<uint64_t>(run_id.value()) * kMaxCores + core.value();
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROFILE_LAUNCH_CONTEXT_H_
