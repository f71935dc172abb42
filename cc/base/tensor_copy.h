#ifndef TF_TPU_EXT_CC_BASE_TENSOR_COPY_H_
#define TF_TPU_EXT_CC_BASE_TENSOR_COPY_H_

#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_tpu_ext {

// Copies the leading block, of the shape of `to`, from a row-major array of shape `from_shape`: the
// real part of a padded array. Both have the same rank and no dimension of `to` is larger.
void CopyLeadingBlock(const void* from, const tensorflow::TensorShape& from_shape,
                      tensorflow::Tensor* to);

// Copies the leading block of that shape from one row-major array to the same place in another.
void CopyLeadingBlock(const tensorflow::Tensor& from, const tensorflow::TensorShape& block,
                      tensorflow::Tensor* to);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_TENSOR_COPY_H_
