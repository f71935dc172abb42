// Repeats a piece of work at a slowing pace until it is cancelled.
#ifndef TF_TPU_EXT_CC_DATA_PACED_LOOP_H_
#define TF_TPU_EXT_CC_DATA_PACED_LOOP_H_

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "xla/tsl/framework/cancellation.h"

namespace tf_tpu_ext {

// Does `work` immediately, then again after pauses that start at `first_pause` and double up to
// `longest_pause`. Returns as soon as `cancellation` is cancelled and the work in progress, if any,
// has ended; does nothing if it is already cancelled.
void RunPaced(tsl::CancellationManager& cancellation, absl::Duration first_pause,
              absl::Duration longest_pause, absl::FunctionRef<void()> work);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DATA_PACED_LOOP_H_
