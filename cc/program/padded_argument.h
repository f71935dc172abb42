#ifndef TF_TPU_EXT_CC_PROGRAM_PADDED_ARGUMENT_H_
#define TF_TPU_EXT_CC_PROGRAM_PADDED_ARGUMENT_H_

#include <utility>
#include <vector>

#include "cc/program/value_numbers.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_tpu_ext {

// An argument that was padded on the host.
struct PaddedArgument {
  ArgumentNumber argument;
  // Padded dimensions, each with the argument that holds its true size.
  std::vector<std::pair<int, ArgumentNumber>> sizes;
};

// The shape without padding; `arguments` contains the argument. A size that is not a single integer
// is ignored, and a size that is out of range is clamped.
tensorflow::TensorShape TrueShape(const PaddedArgument& padded, const Arguments& arguments);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_PADDED_ARGUMENT_H_
