// How a waiting op ends when its step is cancelled.
#ifndef TF_TPU_EXT_CC_BASE_AFTER_CANCELLATION_H_
#define TF_TPU_EXT_CC_BASE_AFTER_CANCELLATION_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tf_tpu_ext {

// Calls `end` a moment later. Most cancellations are the consequence of an error, which TensorFlow
// reports only if it arrives before the ops that it cancels have ended: such ops end through this.
void AfterCancellation(std::function<void()> end);

// The status of a cancelled op. If there is an error that caused the cancellation, TensorFlow
// reports that error instead.
absl::Status Cancelled(absl::string_view message);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_AFTER_CANCELLATION_H_
