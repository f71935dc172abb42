// The custom call by which a running program computes with one of TensorFlow's own CPU kernels.
#ifndef TF_TPU_EXT_CC_RUNTIME_KERNEL_CALL_H_
#define TF_TPU_EXT_CC_RUNTIME_KERNEL_CALL_H_

#include <string>

#include "absl/status/statusor.h"
#include "tensorflow/core/framework/node_def.pb.h"

namespace tf_tpu_ext {

inline constexpr char kKernelTarget[] = "tf_tpu_ext_kernel";

// Its string attributes: the node of the kernel, as EncodeKernelNode makes it, and the TensorFlow
// op that it stands for.
inline constexpr char kKernelNode[] = "node";
inline constexpr char kKernelOp[] = "op";
// The node of a kernel that runs before it, or empty. It gets the first operand; its last output
// becomes the last input of the other.
inline constexpr char kKernelBefore[] = "before";
// An integer attribute: how much there is to compute, roughly, in units of a convolution's
// multiplication and addition, of which a processor does some 50 in a nanosecond.
inline constexpr char kKernelWork[] = "work";

// A text without quotes or spaces. Equal nodes have equal texts: they share a kernel.
std::string EncodeKernelNode(const tensorflow::NodeDef& node);

// The node of such a text. An error tells that it is none.
absl::StatusOr<tensorflow::NodeDef> DecodeKernelNode(const std::string& text);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_KERNEL_CALL_H_
