#include "cc/runtime/stacked_replicas.h"

#include <cstring>
#include <utility>

#include "cc/base/memory.h"
#include "cc/runtime/shared_update.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

absl::StatusOr<Tensor> Allocate(tensorflow::DataType dtype, const TensorShape& shape) {
  Tensor tensor(tensorflow::cpu_allocator(), dtype, shape);
  TF_RETURN_IF_ERROR(CheckMemory(tensor, "A group of replicas", "one of its arrays"));
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
    TF_ASSIGN_OR_RETURN(Tensor stack, Allocate(arguments[i].dtype(), shape));
    const size_t bytes = arguments[i].TotalBytes();
    char* data = static_cast<char*>(stack.data());
    for (const std::vector<Tensor>* replica : group) {
      if (bytes > 0) std::memcpy(data, (*replica)[i].data(), bytes);
      data += bytes;
    }
    arguments[i] = std::move(stack);
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
      TF_ASSIGN_OR_RETURN(Tensor own, Allocate(outputs[i].dtype(), shape));
      const size_t bytes = own.TotalBytes();
      if (bytes > 0) std::memcpy(own.data(), data, bytes);
      data += bytes;
      replica[i] = std::move(own);
    }
  }
  return replicas;
}

}  // namespace tf_tpu_ext
