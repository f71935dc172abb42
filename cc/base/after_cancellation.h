// How an op that waits takes the news that its step was cancelled.
#ifndef TF_TPU_EXT_CC_BASE_AFTER_CANCELLATION_H_
#define TF_TPU_EXT_CC_BASE_AFTER_CANCELLATION_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tf_tpu_ext {

// Most cancellations are the consequence of an error, which TensorFlow tells only if it arrives
// before the ends of the ops that it cancels. So these end a moment later, through this.
void AfterCancellation(std::function<void()> end);

// The status of an op that was cancelled: the consequence of an error if there is one.
absl::Status Cancelled(absl::string_view message);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_AFTER_CANCELLATION_H_
