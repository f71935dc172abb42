// Ends tf.data's autotuning loop the moment its iterator is deleted.
//
// TensorFlow wakes the loop when the iterator goes, but the loop may look before the cancellation
// is visible and then sleeps out its pause, up to a minute, while the deletion waits for it. The
// loop here tunes by the same Model, at the same pace, and cannot miss the cancellation.
#ifndef TF_TPU_EXT_CC_DATA_AUTOTUNE_LOOP_H_
#define TF_TPU_EXT_CC_DATA_AUTOTUNE_LOOP_H_

#include "absl/status/status.h"

namespace tf_tpu_ext {

// Lets every iterator of the process that is made from now on tune by our loop. Does nothing where
// that is so already. Fails, changing nothing, where TensorFlow's libraries don't call their loop
// by way of an import table.
absl::Status ReplaceAutotuneLoop();

// Gives new iterators TensorFlow's loop again.
absl::Status RestoreAutotuneLoop();

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DATA_AUTOTUNE_LOOP_H_
