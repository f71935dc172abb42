// The custom call by which a running program computes with one of TensorFlow's own CPU kernels.
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

// Operands: the kernel's inputs but the one that `before` makes. Result: the kernel's first output.
struct KernelCall {
  // The type of the op that it was, and that op's name, for errors.
  std::string op;
  std::string name;
  tensorflow::NodeDef node;
  // A kernel that runs before it. It gets the first operand; its last output becomes the last input
  // of the other.
  std::optional<tensorflow::NodeDef> before;
  // How much there is to compute, roughly, in units of a convolution's multiplication and addition,
  // of which a processor does some 50 in a nanosecond.
  int64_t work = 0;
};

// As the backend_config of an instruction.
std::string Encode(const KernelCall& call);
absl::StatusOr<KernelCall> DecodeKernelCall(absl::string_view backend_config);
absl::StatusOr<KernelCall> DecodeKernelCall(const CallAttributes& attributes);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_KERNEL_CALL_H_
