// TensorFlow's CPU kernels assume that a variable has the type that their op names, and end the
// process if it does not.
#ifndef TF_TPU_EXT_CC_KERNELS_VARIABLE_TYPES_H_
#define TF_TPU_EXT_CC_KERNELS_VARIABLE_TYPES_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/types.pb.h"

namespace tf_tpu_ext {

// The type of the variables that the op updates; DT_INVALID if the op names none or checks them
// itself.
tensorflow::DataType UpdatedType(const tensorflow::OpKernelConstruction& construction);

// Returns an error unless all variables among the inputs exist and those that have a value are of
// that type.
absl::Status CheckVariableTypes(tensorflow::OpKernelContext* context, tensorflow::DataType type);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_VARIABLE_TYPES_H_
