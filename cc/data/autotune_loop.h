// Ends tf.data's autotuning loop the moment its iterator is deleted.
//
// TensorFlow wakes the loop when the iterator is deleted, but the loop may check before the
// cancellation is visible. It then sleeps for the rest of its pause, up to a minute, while the
// deletion waits for it. The loop here tunes with the same Model at the same pace, and can't miss
// the cancellation.
#ifndef TF_TPU_EXT_CC_DATA_AUTOTUNE_LOOP_H_
#define TF_TPU_EXT_CC_DATA_AUTOTUNE_LOOP_H_

#include "absl/status/status.h"

namespace tf_tpu_ext {

// Makes our loop tune every iterator that this process creates from now on. Does nothing if it
// already does. Fails, changing nothing, if TensorFlow's libraries don't call their loop through an
// import table.
absl::Status ReplaceAutotuneLoop();

// Gives new iterators TensorFlow's loop again.
absl::Status RestoreAutotuneLoop();

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DATA_AUTOTUNE_LOOP_H_
