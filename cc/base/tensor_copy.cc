#include "cc/base/tensor_copy.h"

#include <cstdint>
#include <cstring>

namespace tf_tpu_ext {
namespace {

using tensorflow::TensorShape;

// The index, in an array of that shape, of a row of the block. Rows end after dimension `last_cut`.
int64_t RowIn(const TensorShape& array, const TensorShape& block, int64_t row, int last_cut) {
  int64_t stride = 1, index = 0;
  for (int d = last_cut - 1; d >= 0; --d) {
    index += row % block.dim_size(d) * stride;
    row /= block.dim_size(d);
    stride *= array.dim_size(d);
  }
  return index;
}

void CopyBlock(const void* from, const TensorShape& from_shape, const TensorShape& block,
               tensorflow::Tensor* to) {
  if (block.num_elements() == 0) return;
  // Dimensions after the last one that was cut are contiguous in both arrays.
  int last_cut = block.dims() - 1;
  int64_t row = tensorflow::DataTypeSize(to->dtype());
  while (last_cut >= 0 && block.dim_size(last_cut) == from_shape.dim_size(last_cut) &&
         block.dim_size(last_cut) == to->dim_size(last_cut)) {
    row *= block.dim_size(last_cut--);
  }
  const char* source = static_cast<const char*>(from);
  char* target = static_cast<char*>(to->data());
  if (last_cut < 0) {
    std::memcpy(target, source, row);
    return;
  }
  const int64_t from_row = row * from_shape.dim_size(last_cut);
  const int64_t to_row = row * to->dim_size(last_cut);
  row *= block.dim_size(last_cut);
  const int64_t rows = block.num_elements() * tensorflow::DataTypeSize(to->dtype()) / row;
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(target + RowIn(to->shape(), block, i, last_cut) * to_row,
                source + RowIn(from_shape, block, i, last_cut) * from_row, row);
  }
}

}  // namespace

void CopyLeadingBlock(const void* from, const TensorShape& from_shape, tensorflow::Tensor* to) {
  CopyBlock(from, from_shape, to->shape(), to);
}

void CopyLeadingBlock(const tensorflow::Tensor& from, const TensorShape& block,
                      tensorflow::Tensor* to) {
  CopyBlock(from.data(), from.shape(), block, to);
}

}  // namespace tf_tpu_ext
