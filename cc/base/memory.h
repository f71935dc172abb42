#ifndef TF_TPU_EXT_CC_BASE_MEMORY_H_
#define TF_TPU_EXT_CC_BASE_MEMORY_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

// Returns ResourceExhausted if the host had no memory for the tensor: a failed allocation leaves it
// without a buffer. `user` says who needs it, `use` what for.
absl::Status CheckMemory(const tensorflow::Tensor& tensor, absl::string_view user,
                         absl::string_view use);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_MEMORY_H_
