#include "cc/program/padded_argument.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

std::optional<int64_t> SizeIn(const tensorflow::Tensor& size) {
  if (size.NumElements() != 1) return std::nullopt;
  if (size.dtype() == tensorflow::DT_INT32) return size.flat<int32_t>()(0);
  if (size.dtype() == tensorflow::DT_INT64) return size.flat<int64_t>()(0);
  return std::nullopt;
}

}  // namespace

tensorflow::TensorShape TrueShape(const PaddedArgument& padded, const Arguments& arguments) {
  tensorflow::TensorShape shape = arguments[padded.argument].shape();
  for (const auto& [dimension, size_argument] : padded.sizes) {
    if (dimension >= shape.dims() || !arguments.Has(size_argument)) continue;
    if (const auto size = SizeIn(arguments[size_argument]); size.has_value()) {
      shape.set_dim(dimension, std::clamp<int64_t>(*size, 0, shape.dim_size(dimension)));
    }
  }
  return shape;
}

}  // namespace tf_tpu_ext
