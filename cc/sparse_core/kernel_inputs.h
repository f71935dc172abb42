// Inputs and attributes of the kernels that prepare ids for SparseCores.
#ifndef TF_TPU_EXT_CC_SPARSE_CORE_KERNEL_INPUTS_H_
#define TF_TPU_EXT_CC_SPARSE_CORE_KERNEL_INPUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cc/sparse_core/sorted_ids.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_tpu_ext {

// The values of a tensor of this type, regardless of its shape.
template <typename T>
absl::Span<const T> ValuesOf(const tensorflow::Tensor& tensor) {
  return absl::MakeConstSpan(static_cast<const T*>(tensor.data()), tensor.NumElements());
}

inline CooView ViewOf(const tensorflow::Tensor& samples, const tensorflow::Tensor& ids,
                      const tensorflow::Tensor& gains) {
  return {ValuesOf<int32_t>(samples), ValuesOf<int32_t>(ids), ValuesOf<float>(gains)};
}

// Adds the op's name to an error.
inline absl::Status OfOp(const tensorflow::OpKernelContext& context, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("Op ", context.op_kernel().name(), " (",
                                   context.op_kernel().type_string(), "): ", status.message()));
}

template <typename T>
tensorflow::Tensor VectorOf(const std::vector<T>& values) {
  tensorflow::Tensor tensor(tensorflow::DataTypeToEnum<T>::value,
                            tensorflow::TensorShape({static_cast<int64_t>(values.size())}));
  std::copy(values.begin(), values.end(), tensor.flat<T>().data());
  return tensor;
}

template <typename T>
tensorflow::Tensor ScalarOf(T value) {
  tensorflow::Tensor tensor(tensorflow::DataTypeToEnum<T>::value, tensorflow::TensorShape({}));
  tensor.scalar<T>()() = value;
  return tensor;
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_SPARSE_CORE_KERNEL_INPUTS_H_
