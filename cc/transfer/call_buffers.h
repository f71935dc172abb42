// The operands and results of custom calls as tensors.
#ifndef TF_TPU_EXT_CC_TRANSFER_CALL_BUFFERS_H_
#define TF_TPU_EXT_CC_TRANSFER_CALL_BUFFERS_H_

#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cc/program/dynamic_dimensions.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"
#include "xla/ffi/api/c_api.h"

namespace tf_tpu_ext {

// The buffers of a call, without tokens.
using CallBuffers = absl::InlinedVector<const XLA_FFI_Buffer*, 8>;
CallBuffers OperandBuffers(const XLA_FFI_Args& operands);
CallBuffers ResultBuffers(const XLA_FFI_Rets& results);

// Whether operands may stay in the program's memory.
enum class OperandMemory {
  kCopied,
  // In the program's memory, if they are aligned for kernels: the caller must be done with them
  // before the program continues.
  kBorrowed,
};

// Reads the operands, reduced to their true sizes.
absl::StatusOr<std::vector<tensorflow::Tensor>> ReadOperands(
    const XLA_FFI_Args& operands, absl::Span<const DynamicDimension> dynamic, OperandMemory memory);

// Where a call's result must be written. The memory outlives the call's frame: it lasts until the
// call has completed.
struct CallResult {
  void* data;
  tensorflow::DataType type;
  tensorflow::TensorShape shape;
};

std::vector<CallResult> ResultsOf(const XLA_FFI_Rets& results);

// The error of a call that a runtime other than this library's has run.
absl::Status NoTpuProgram(const std::string& op);

// Writes what came from the host for `op`. Writes nothing if a tensor is not what the program
// expects.
absl::Status WriteResults(absl::Span<const CallResult> results,
                          absl::Span<const tensorflow::Tensor> tensors, const std::string& op);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_CALL_BUFFERS_H_
