// Kernel inputs that must be scalars.
#ifndef TF_TPU_EXT_CC_BASE_SCALAR_INPUT_H_
#define TF_TPU_EXT_CC_BASE_SCALAR_INPUT_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

// The only value of an input of the kernel, or an error that calls it `argument`. Tensor's own
// accessors end the process if a graph provides any other number of values.
template <typename T>
absl::StatusOr<T> ScalarInput(const tensorflow::OpKernelContext& context,
                              const tensorflow::Tensor& input, absl::string_view argument) {
  if (input.NumElements() == 1) return input.flat<T>()(0);
  return absl::InvalidArgumentError(
      absl::StrCat("The ", argument, " of op ", context.op_kernel().name(), " has the shape ",
                   input.shape().DebugString(), "; it must be a scalar."));
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_SCALAR_INPUT_H_
