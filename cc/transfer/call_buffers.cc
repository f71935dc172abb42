#include "cc/transfer/call_buffers.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "cc/base/custom_call.h"
#include "cc/base/fault_points.h"
#include "cc/base/memory.h"
#include "cc/base/tensor_copy.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

using Shapes = absl::InlinedVector<TensorShape, 4>;

// Replaces the bounds of dynamic dimensions in the shapes with the true sizes that `sizes` contain.
absl::Status CutToSizes(absl::Span<const DynamicDimension> dynamic,
                        absl::Span<const XLA_FFI_Buffer* const> sizes, Shapes* shapes) {
  for (size_t i = 0; i < dynamic.size(); ++i) {
    const auto& [operand, dimension] = dynamic[i];
    if (operand >= static_cast<int>(shapes->size()) || dimension >= (*shapes)[operand].dims()) {
      return absl::InternalError(absl::StrCat("Dimension ", dimension, " of operand ", operand,
                                              " can't be dynamic: the call has ", shapes->size(),
                                              " operands, and that operand no such dimension."));
    }
    int32_t size;
    std::memcpy(&size, sizes[i]->data, sizeof(size));
    const int64_t bound = (*shapes)[operand].dim_size(dimension);
    // There is only memory for the bound.
    if (size < 0 || size > bound) {
      return absl::InvalidArgumentError(
          absl::StrCat("XLA computed a size of ", size, " for dimension ", dimension,
                       " of operand ", operand, "; it must be from 0 to ", bound,
                       ". An op of the program cannot take inputs of this "
                       "dynamic size: give it inputs of static shape, or larger ones."));
    }
    (*shapes)[operand].set_dim(dimension, size);
  }
  return absl::OkStatus();
}

void AppendArray(const void* value, CallBuffers* buffers) {
  const auto* buffer = static_cast<const XLA_FFI_Buffer*>(value);
  if (buffer->dtype != XLA_FFI_DataType_TOKEN) buffers->push_back(buffer);
}

}  // namespace

CallBuffers OperandBuffers(const XLA_FFI_Args& operands) {
  CallBuffers buffers;
  buffers.reserve(operands.size);
  for (int64_t i = 0; i < operands.size; ++i) AppendArray(operands.args[i], &buffers);
  return buffers;
}

CallBuffers ResultBuffers(const XLA_FFI_Rets& results) {
  CallBuffers buffers;
  buffers.reserve(results.size);
  for (int64_t i = 0; i < results.size; ++i) AppendArray(results.rets[i], &buffers);
  return buffers;
}

absl::StatusOr<std::vector<Tensor>> ReadOperands(const XLA_FFI_Args& operands,
                                                 absl::Span<const DynamicDimension> dynamic,
                                                 OperandMemory memory) {
  const CallBuffers buffers = OperandBuffers(operands);
  if (buffers.size() < dynamic.size()) {
    return absl::InternalError(absl::StrCat("A call with ", dynamic.size(),
                                            " dynamic dimensions has only ", buffers.size(),
                                            " operands."));
  }
  const size_t count = buffers.size() - dynamic.size();
  Shapes shapes;
  for (size_t i = 0; i < count; ++i) shapes.push_back(ShapeOf(*buffers[i]));
  TF_RETURN_IF_ERROR(CutToSizes(dynamic, absl::MakeSpan(buffers).subspan(count), &shapes));
  std::vector<Tensor> tensors;
  tensors.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const TensorShape padded = ShapeOf(*buffers[i]);
    if (memory == OperandMemory::kBorrowed && IsAlignedForKernels(buffers[i]->data) &&
        shapes[i] == padded) {
      tensors.push_back(Borrow(*buffers[i]));
      continue;
    }
    Tensor tensor(ToTensorFlowType(buffers[i]->dtype), shapes[i]);
    TF_RETURN_IF_ERROR(CheckMemory(tensor, "A call of the host", "an argument"));
    CopyLeadingBlock(buffers[i]->data, padded, &tensor);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::vector<CallResult> ResultsOf(const XLA_FFI_Rets& results) {
  std::vector<CallResult> made;
  made.reserve(results.size);
  for (const XLA_FFI_Buffer* buffer : ResultBuffers(results)) {
    made.push_back({buffer->data, ToTensorFlowType(buffer->dtype), ShapeOf(*buffer)});
  }
  return made;
}

absl::Status NoTpuProgram(const std::string& op) {
  return absl::FailedPreconditionError(
      absl::StrCat("Op ", op, " talks to the host and can run only in a TPU program."));
}

absl::Status WriteResults(absl::Span<const CallResult> results, absl::Span<const Tensor> tensors,
                          const std::string& op) {
  TF_RETURN_IF_ERROR(FaultAt(FaultPoint::kTransfer));
  if (results.size() != tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat("Op ", op, " gets ", tensors.size(),
                                                   " tensors from the host; the compiled program "
                                                   "expects ",
                                                   results.size(), "."));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const CallResult& result = results[i];
    if (tensors[i].dtype() != result.type || tensors[i].shape() != result.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          "Tensor ", i, " from the host for op ", op, " is ",
          tensorflow::DataTypeString(tensors[i].dtype()), tensors[i].shape().DebugString(),
          "; the compiled program expects ", tensorflow::DataTypeString(result.type),
          result.shape.DebugString(), ". Return the type and shape that tracing saw."));
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const size_t bytes = tensors[i].TotalBytes();
    if (bytes > 0) std::memcpy(results[i].data, tensors[i].data(), bytes);
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
