// Makes virtual cores visible to TensorFlow's profiler.
#ifndef TF_TPU_EXT_CC_PROFILE_PROFILER_H_
#define TF_TPU_EXT_CC_PROFILE_PROFILER_H_

#include "cc/base/machine.h"
#include "cc/profile/recorder.h"

namespace tf_tpu_ext {

// From now on, every profile of the process gets planes for the cores. Both arguments must live
// until the process ends.
void RegisterProfiler(ProfileRecorder* recorder, const Machine* machine);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROFILE_PROFILER_H_
