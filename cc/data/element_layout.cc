#include "cc/data/element_layout.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"
#include "tensorflow/core/platform/tstring.h"

namespace tf_tpu_ext {
namespace {

constexpr int64_t kWord = sizeof(int64_t);

absl::Status Damaged(absl::string_view what) {
  return absl::InternalError(absl::StrCat("An element of a pipeline is damaged: ", what,
                                          ". Report this with what tf-tpu doctor says."));
}

// Reads words, one by one, from the front of some memory.
class Words {
 public:
  explicit Words(absl::string_view memory) : rest_(memory) {}

  absl::StatusOr<int64_t> Next(absl::string_view what) {
    if (rest_.size() < kWord) return Damaged(absl::StrCat(what, " is missing"));
    int64_t word;
    std::memcpy(&word, rest_.data(), kWord);
    rest_.remove_prefix(kWord);
    return word;
  }

  // A word from 0 to `most`.
  absl::StatusOr<int64_t> Next(absl::string_view what, int64_t most) {
    TF_ASSIGN_OR_RETURN(const int64_t word, Next(what));
    if (word < 0 || word > most) {
      return Damaged(absl::StrCat(what, " is ", word, ", expected 0 to ", most));
    }
    return word;
  }

  absl::string_view rest() const { return rest_; }

 private:
  absl::string_view rest_;
};

absl::StatusOr<LaidOutTensor> FindTensor(absl::string_view memory, Words& words) {
  LaidOutTensor tensor;
  const int64_t size = static_cast<int64_t>(memory.size());
  TF_ASSIGN_OR_RETURN(const int64_t dtype, words.Next("a dtype", tensorflow::DataType_MAX));
  TF_ASSIGN_OR_RETURN(const int64_t begin, words.Next("where a tensor begins", size));
  TF_ASSIGN_OR_RETURN(const int64_t bytes, words.Next("a tensor's size", size - begin));
  TF_ASSIGN_OR_RETURN(const int64_t rank,
                      words.Next("a rank", tensorflow::TensorShape::MaxDimensions()));
  std::vector<int64_t> dimensions(rank);
  for (int64_t& dimension : dimensions) {
    TF_ASSIGN_OR_RETURN(dimension, words.Next("a dimension"));
  }
  tensor.dtype = static_cast<tensorflow::DataType>(dtype);
  TF_RETURN_IF_ERROR(tensorflow::TensorShape::BuildTensorShape(dimensions, &tensor.shape));
  tensor.bytes = memory.substr(begin, bytes);
  const bool strings = tensor.dtype == tensorflow::DT_STRING;
  const int64_t of_one = strings ? kWord : tensorflow::DataTypeSize(tensor.dtype);
  if (of_one == 0) return Damaged(absl::StrCat("its dtype is number ", dtype));
  // Divides, because a product may overflow.
  const int64_t count = tensor.shape.num_elements();
  const bool fits =
      strings ? count <= bytes / of_one : count == bytes / of_one && bytes % of_one == 0;
  if (!fits) {
    return Damaged(absl::StrCat(bytes, " bytes for ", tensorflow::DataTypeString(tensor.dtype), " ",
                                tensor.shape.DebugString()));
  }
  return tensor;
}

absl::Status CopyStrings(absl::string_view bytes, tensorflow::Tensor* to) {
  auto strings = to->flat<tensorflow::tstring>();
  const int64_t count = strings.size();
  Words sizes(bytes.substr(0, count * kWord));
  absl::string_view characters = bytes.substr(count * kWord);
  for (int64_t i = 0; i < count; ++i) {
    TF_ASSIGN_OR_RETURN(const int64_t size, sizes.Next("a string's size", characters.size()));
    strings(i) = tensorflow::tstring(characters.substr(0, size));
    characters.remove_prefix(size);
  }
  return absl::OkStatus();
}

}  // namespace

bool LaidOutTensor::CanBeReferredTo() const {
  return dtype != tensorflow::DT_STRING &&
         reinterpret_cast<uintptr_t>(bytes.data()) % tensorflow::Allocator::kAllocatorAlignment ==
             0;
}

absl::StatusOr<std::vector<LaidOutTensor>> FindTensors(absl::string_view memory) {
  Words words(memory);
  TF_ASSIGN_OR_RETURN(const int64_t count,
                      words.Next("the number of tensors", memory.size() / kWord));
  std::vector<LaidOutTensor> tensors;
  tensors.reserve(count);
  for (int64_t i = 0; i < count; ++i) {
    TF_ASSIGN_OR_RETURN(LaidOutTensor tensor, FindTensor(memory, words));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

absl::StatusOr<tensorflow::Tensor> CopyTensor(const LaidOutTensor& tensor) {
  tensorflow::Tensor copy(tensor.dtype, tensor.shape);
  if (!copy.IsInitialized() && tensor.shape.num_elements() > 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("There is no memory for an element of ", tensor.bytes.size(), " bytes."));
  }
  if (tensor.dtype == tensorflow::DT_STRING) {
    TF_RETURN_IF_ERROR(CopyStrings(tensor.bytes, &copy));
  } else if (!tensor.bytes.empty()) {
    std::memcpy(copy.data(), tensor.bytes.data(), tensor.bytes.size());
  }
  return copy;
}

}  // namespace tf_tpu_ext
