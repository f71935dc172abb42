// For tests: conversions between tensors and values.
#ifndef TF_TPU_EXT_CC_BASE_TENSOR_TESTING_H_
#define TF_TPU_EXT_CC_BASE_TENSOR_TESTING_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"

namespace tf_tpu_ext {

template <typename T>
tensorflow::Tensor MakeTensor(const std::vector<T>& values, const tensorflow::TensorShape& shape) {
  tensorflow::Tensor tensor(tensorflow::DataTypeToEnum<T>::value, shape);
  std::copy(values.begin(), values.end(), tensor.flat<T>().data());
  return tensor;
}

template <typename T>
tensorflow::Tensor MakeVector(const std::vector<T>& values) {
  return MakeTensor(values, tensorflow::TensorShape({static_cast<int64_t>(values.size())}));
}

template <typename T>
tensorflow::Tensor MakeScalar(T value) {
  return MakeTensor<T>({std::move(value)}, tensorflow::TensorShape({}));
}

template <typename T>
std::vector<T> ValuesOf(const tensorflow::Tensor& tensor) {
  const auto flat = tensor.flat<T>();
  return std::vector<T>(flat.data(), flat.data() + flat.size());
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_TENSOR_TESTING_H_
