#include "cc/runtime/stacked_replicas.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/runtime/shared_update.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

absl::StatusOr<Tensor> Allocate(tensorflow::DataType dtype, const TensorShape& shape) {
  Tensor tensor(tensorflow::cpu_allocator(), dtype, shape);
  if (tensor.data() == nullptr && tensor.TotalBytes() > 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("The host has no memory for ", tensor.TotalBytes(),
                     " bytes of the replicas' arrays. Use a smaller batch, or fewer cores."));
  }
  return tensor;
}

}  // namespace

bool CanRunStacked(const StackedReplicas& stacked, ReplicaArguments replicas) {
  const std::vector<Tensor>& first = *replicas[0];
  const std::vector<Tensor>* last = replicas[0];
  for (const std::vector<Tensor>* replica : replicas) {
    if (replica->size() != first.size()) return false;
    for (int argument : stacked.mirrored_arguments) {
      // Replicas that share a buffer come after each other.
      const Tensor& value = (*replica)[argument];
      const Tensor& before = (*last)[argument];
      const bool seen = value.data() == before.data() && value.shape() == before.shape();
      if (!seen && !HaveEqualBytes(first[argument], value)) return false;
    }
    last = replica;
    for (size_t i = 0; i < first.size(); ++i) {
      if (!stacked.stacked_arguments[i]) continue;
      const Tensor& argument = (*replica)[i];
      if (argument.dtype() != first[i].dtype() || argument.shape() != first[i].shape()) {
        return false;
      }
    }
  }
  return true;
}

absl::StatusOr<std::vector<Tensor>> StackArguments(const StackedReplicas& stacked,
                                                   ReplicaArguments group) {
  std::vector<Tensor> arguments = *group[0];
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!stacked.stacked_arguments[i]) continue;
    TensorShape shape = arguments[i].shape();
    shape.InsertDim(0, static_cast<int64_t>(group.size()));
    absl::StatusOr<Tensor> stack = Allocate(arguments[i].dtype(), shape);
    if (!stack.ok()) return stack.status();
    const size_t bytes = arguments[i].TotalBytes();
    char* data = static_cast<char*>(stack->data());
    for (const std::vector<Tensor>* replica : group) {
      if (bytes > 0) std::memcpy(data, (*replica)[i].data(), bytes);
      data += bytes;
    }
    arguments[i] = *std::move(stack);
  }
  return arguments;
}

absl::StatusOr<std::vector<std::vector<Tensor>>> UnstackOutputs(
    const StackedReplicas& stacked, const std::vector<Tensor>& outputs) {
  std::vector<std::vector<Tensor>> replicas(stacked.group_size, outputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!stacked.stacked_outputs[i]) continue;
    TensorShape shape = outputs[i].shape();
    shape.RemoveDim(0);
    const char* data = static_cast<const char*>(outputs[i].data());
    for (std::vector<Tensor>& replica : replicas) {
      absl::StatusOr<Tensor> own = Allocate(outputs[i].dtype(), shape);
      if (!own.ok()) return own.status();
      const size_t bytes = own->TotalBytes();
      if (bytes > 0) std::memcpy(own->data(), data, bytes);
      data += bytes;
      replica[i] = *std::move(own);
    }
  }
  return replicas;
}

}  // namespace tf_tpu_ext
