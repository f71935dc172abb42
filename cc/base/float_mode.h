// How TensorFlow's threads compute with floating-point numbers. Threads that we start have to
// choose it.
#ifndef TF_TPU_EXT_CC_BASE_FLOAT_MODE_H_
#define TF_TPU_EXT_CC_BASE_FLOAT_MODE_H_

#include <cfenv>

#include "tsl/platform/denormal.h"
#include "tsl/platform/setround.h"

namespace tf_tpu_ext {

// While it exists, the current thread takes denormal numbers as zero and rounds to the nearest.
class TensorFlowFloatMode {
 private:
  const tsl::port::ScopedFlushDenormal flush_;
  const tsl::port::ScopedSetRound round_{FE_TONEAREST};
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_FLOAT_MODE_H_
