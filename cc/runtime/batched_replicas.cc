#include "cc/runtime/batched_replicas.h"

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

// Runs in every step before the programs start, so it should detect equality without reading data:
// mirrored variables usually share one buffer.
bool CanRunBatched(const BatchedReplicas& batched, ReplicaArguments replicas) {
  const Arguments& first = *replicas[0];
  const Arguments* last = replicas[0];
  for (const Arguments* replica : replicas) {
    if (replica->size() != first.size()) return false;
    for (ArgumentNumber argument : batched.mirrored_arguments) {
      // Replicas that share a buffer are adjacent.
      const Tensor& value = (*replica)[argument];
      const Tensor& before = (*last)[argument];
      const bool seen = value.data() == before.data() && value.shape() == before.shape();
      if (!seen && !HaveEqualBytes(first[argument], value)) return false;
    }
    last = replica;
    for (ArgumentNumber argument : first.numbers()) {
      if (!batched.batched_arguments[argument]) continue;
      const Tensor& value = (*replica)[argument];
      if (value.dtype() != first[argument].dtype() || value.shape() != first[argument].shape()) {
        return false;
      }
    }
  }
  return true;
}

absl::StatusOr<Arguments> BatchArguments(const BatchedReplicas& batched, ReplicaArguments group) {
  Arguments arguments = *group[0];
  for (ArgumentNumber argument : arguments.numbers()) {
    if (!batched.batched_arguments[argument]) continue;
    TensorShape shape = arguments[argument].shape();
    shape.InsertDim(0, static_cast<int64_t>(group.size()));
    TF_ASSIGN_OR_RETURN(Tensor batch, Allocate(arguments[argument].dtype(), shape));
    const size_t bytes = arguments[argument].TotalBytes();
    char* data = static_cast<char*>(batch.data());
    for (const Arguments* replica : group) {
      if (bytes > 0) std::memcpy(data, (*replica)[argument].data(), bytes);
      data += bytes;
    }
    arguments[argument] = std::move(batch);
  }
  return arguments;
}

absl::StatusOr<std::vector<Outputs>> UnbatchOutputs(const BatchedReplicas& batched,
                                                    const Outputs& outputs) {
  std::vector<Outputs> replicas(batched.group_size, outputs);
  for (OutputNumber output : outputs.numbers()) {
    if (!batched.batched_outputs[output]) continue;
    TensorShape shape = outputs[output].shape();
    shape.RemoveDim(0);
    const char* data = static_cast<const char*>(outputs[output].data());
    for (Outputs& replica : replicas) {
      TF_ASSIGN_OR_RETURN(Tensor own, Allocate(outputs[output].dtype(), shape));
      const size_t bytes = own.TotalBytes();
      if (bytes > 0) std::memcpy(own.data(), data, bytes);
      data += bytes;
      replica[output] = std::move(own);
    }
  }
  return replicas;
}

}  // namespace tf_tpu_ext
