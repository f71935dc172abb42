// How an element of a pipeline is laid out in memory that two processes share.
//
// It begins with 64-bit words in the machine's byte order: the number of tensors, then for each its
// dtype, where its bytes begin, how many there are, its rank and its dimensions. The bytes of
// strings begin with their sizes, one word each; those of all other dtypes are as in a tensor.
// tf_tpu_ext/io/server/sending.py writes this layout.
#ifndef TF_TPU_EXT_CC_DATA_ELEMENT_LAYOUT_H_
#define TF_TPU_EXT_CC_DATA_ELEMENT_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.pb.h"

namespace tf_tpu_ext {

// A tensor of an element.
struct LaidOutTensor {
  tensorflow::DataType dtype = tensorflow::DT_INVALID;
  tensorflow::TensorShape shape;
  // As many bytes as the dtype and the shape require; for strings, at least their sizes.
  absl::string_view bytes;

  // Whether a tensor may use the bytes in place.
  bool CanBeReferredTo() const;
};

// Finds the tensors of an element. Fails if anything does not fit into `memory`.
absl::StatusOr<std::vector<LaidOutTensor>> FindTensors(absl::string_view memory);

// A tensor with the same values in memory of its own.
absl::StatusOr<tensorflow::Tensor> CopyTensor(const LaidOutTensor& tensor);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DATA_ELEMENT_LAYOUT_H_
