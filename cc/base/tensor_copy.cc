#include "cc/base/tensor_copy.h"

#include <cstring>

namespace tf_tpu_ext {

void CopyLeadingBlock(const void* from, const tensorflow::TensorShape& from_shape,
                      tensorflow::Tensor* to) {
  if (to->NumElements() == 0) return;
  // Dimensions behind the last one that was cut are contiguous in both.
  int last_cut = to->dims() - 1;
  int64_t row = tensorflow::DataTypeSize(to->dtype());
  while (last_cut >= 0 && to->dim_size(last_cut) == from_shape.dim_size(last_cut)) {
    row *= to->dim_size(last_cut--);
  }
  const char* source = static_cast<const char*>(from);
  char* target = static_cast<char*>(to->data());
  if (last_cut < 0) {
    std::memcpy(target, source, row);
    return;
  }
  const int64_t from_row = row * from_shape.dim_size(last_cut);
  row *= to->dim_size(last_cut);
  const int64_t rows = to->TotalBytes() / row;
  for (int64_t i = 0; i < rows; ++i) {
    // The number of the same row in the padded array.
    int64_t rest = i, stride = 1, from_index = 0;
    for (int d = last_cut - 1; d >= 0; --d) {
      from_index += rest % to->dim_size(d) * stride;
      rest /= to->dim_size(d);
      stride *= from_shape.dim_size(d);
    }
    std::memcpy(target + i * row, source + from_index * from_row, row);
  }
}

}  // namespace tf_tpu_ext
