// How an element of a pipeline lies in memory that two processes share.
//
// First words of 64 bits in the machine's byte order: how many tensors there are, then for each its
// dtype, where its bytes begin, how many there are, its rank and its dimensions. Bytes of strings
// begin with their sizes, a word each; those of all other dtypes are as in a tensor. The other
// writer of this is tf_tpu_ext/io/server/sending.py.
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
  // As many as the dtype and the shape take; at least the sizes, if these are strings.
  absl::string_view bytes;

  // Whether a tensor may use the bytes where they are.
  bool CanBeReferredTo() const;
};

// Finds the tensors of an element. Fails on anything that does not fit into `memory`.
absl::StatusOr<std::vector<LaidOutTensor>> FindTensors(absl::string_view memory);

// A tensor of its own with the same values.
absl::StatusOr<tensorflow::Tensor> CopyTensor(const LaidOutTensor& tensor);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DATA_ELEMENT_LAYOUT_H_
