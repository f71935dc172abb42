// Repeats a piece of work at a slowing pace until it is cancelled.
#ifndef TF_TPU_EXT_CC_DATA_PACED_LOOP_H_
#define TF_TPU_EXT_CC_DATA_PACED_LOOP_H_

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "xla/tsl/framework/cancellation.h"

namespace tf_tpu_ext {

// Does `work` at once, then again after pauses that start at `first_pause` and double up to
// `longest_pause`. Returns as soon as `cancellation` is cancelled, or when the work that runs at
// that moment has ended; does nothing where it is cancelled already.
void RunPaced(tsl::CancellationManager& cancellation, absl::Duration first_pause,
              absl::Duration longest_pause, absl::FunctionRef<void()> work);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DATA_PACED_LOOP_H_
