// The custom call through which a running program uses one of TensorFlow's own CPU kernels.
#ifndef TF_TPU_EXT_CC_PROGRAM_KERNEL_CALL_H_
#define TF_TPU_EXT_CC_PROGRAM_KERNEL_CALL_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cc/base/call_attributes.h"
#include "tensorflow/core/framework/node_def.pb.h"

namespace tf_tpu_ext {

inline constexpr char kKernelTarget[] = "tf_tpu_ext_kernel";

// Operands: the kernel's inputs, except the one that `before` makes. Result: the kernel's first
// output.
struct KernelCall {
  // The type and the name of the original op, for errors.
  std::string op;
  std::string name;
  tensorflow::NodeDef node;
  // A kernel that runs first. It gets the first operand; its last output becomes the other kernel's
  // last input.
  std::optional<tensorflow::NodeDef> before;
  // Roughly how much there is to compute, in units of one multiplication and addition of a
  // convolution; a processor does about 50 of those in a nanosecond.
  int64_t work = 0;
};

// Encodes the call as the backend_config of an instruction.
std::string Encode(const KernelCall& call);
absl::StatusOr<KernelCall> DecodeKernelCall(absl::string_view backend_config);
absl::StatusOr<KernelCall> DecodeKernelCall(const CallAttributes& attributes);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_KERNEL_CALL_H_
