// For tests: tensors whose padding would show in every result, and indices for computing references
// element by element.
#ifndef TF_TPU_EXT_CC_COMPILER_OVERRIDES_DYNAMIC_TESTING_H_
#define TF_TPU_EXT_CC_COMPILER_OVERRIDES_DYNAMIC_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"

namespace tf_tpu_ext {

inline constexpr float kJunk = 1000;

// Numbers without a pattern, with junk from position `size` on in one dimension.
inline tensorflow::Tensor Padded(const tensorflow::TensorShape& shape, int dimension,
                                 int64_t size) {
  tensorflow::Tensor tensor(tensorflow::DT_FLOAT, shape);
  int64_t inner = 1;
  for (int d = dimension + 1; d < shape.dims(); ++d) inner *= shape.dim_size(d);
  for (int64_t i = 0; i < tensor.NumElements(); ++i) {
    const int64_t position = i / inner % shape.dim_size(dimension);
    tensor.flat<float>()(i) = position < size ? static_cast<float>((i * 37 + 11) % 23) - 7 : kJunk;
  }
  return tensor;
}

// Numbers without a pattern and without padding.
inline tensorflow::Tensor Numbers(const tensorflow::TensorShape& shape) {
  return Padded(shape, 0, shape.dim_size(0));
}

using Index = std::vector<int64_t>;

// Visits every index of an array of these sizes in row-major order.
inline void ForEachIndex(const Index& sizes, const std::function<void(const Index&)>& visit) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  for (int64_t number = 0; number < count; ++number) {
    Index index(sizes.size());
    int64_t rest = number;
    for (int d = static_cast<int>(sizes.size()) - 1; d >= 0; --d) {
      index[d] = rest % sizes[d];
      rest /= sizes[d];
    }
    visit(index);
  }
}

inline Index SizesOf(const tensorflow::Tensor& tensor) {
  Index sizes;
  for (int d = 0; d < tensor.dims(); ++d) sizes.push_back(tensor.dim_size(d));
  return sizes;
}

inline float& At(tensorflow::Tensor& tensor, const Index& index) {
  int64_t flat = 0;
  for (int d = 0; d < tensor.dims(); ++d) flat = flat * tensor.dim_size(d) + index[d];
  return tensor.flat<float>()(flat);
}

inline float At(const tensorflow::Tensor& tensor, const Index& index) {
  return At(const_cast<tensorflow::Tensor&>(tensor), index);
}

inline tensorflow::Tensor Zeros(const Index& sizes) {
  tensorflow::Tensor tensor(tensorflow::DT_FLOAT, tensorflow::TensorShape(sizes));
  tensor.flat<float>().setZero();
  return tensor;
}

// Returns the first `size` elements of a dimension.
inline tensorflow::Tensor Cut(const tensorflow::Tensor& tensor, int dimension, int64_t size) {
  Index sizes = SizesOf(tensor);
  sizes[dimension] = size;
  tensorflow::Tensor cut = Zeros(sizes);
  ForEachIndex(sizes, [&](const Index& index) { At(cut, index) = At(tensor, index); });
  return cut;
}

inline void ExpectSame(const absl::StatusOr<tensorflow::Tensor>& actual,
                       const absl::StatusOr<tensorflow::Tensor>& expected,
                       const std::string& what) {
  ASSERT_TRUE(expected.ok()) << what << expected.status();
  ASSERT_TRUE(actual.ok()) << what << actual.status();
  ASSERT_EQ(actual->dtype(), expected->dtype()) << what;
  ASSERT_EQ(actual->shape(), expected->shape()) << what;
  for (int64_t i = 0; i < expected->NumElements(); ++i) {
    const float a = actual->flat<float>()(i), b = expected->flat<float>()(i);
    EXPECT_NEAR(a, b, 1e-4 * (1 + std::abs(b))) << what << " element " << i;
  }
}

// How windows slide over one dimension, according to TensorFlow's definitions of SAME and VALID.
struct SlidingWindow {
  SlidingWindow(int64_t elements, int64_t window, int64_t stride, bool same)
      : elements(elements), window(window), stride(stride) {
    if (same) {
      count = (elements + stride - 1) / stride;
      before = std::max<int64_t>(0, (count - 1) * stride + window - elements) / 2;
    } else {
      count = elements < window ? 0 : (elements - window) / stride + 1;
    }
  }

  // The position of an element of a window, possibly out of bounds.
  int64_t PositionOf(int64_t number, int64_t element) const {
    return number * stride - before + element;
  }
  bool IsInside(int64_t position) const { return position >= 0 && position < elements; }

  int64_t elements, window, stride;
  int64_t count = 0;
  int64_t before = 0;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_OVERRIDES_DYNAMIC_TESTING_H_
