// Decides which ops of a program run on TensorFlow's own CPU kernels instead of XLA's code.
//
// XLA:CPU's convolutions and their gradients are slow, above all in loops. TensorFlow's, which use
// oneDNN or Eigen, are not. Convolutions and pools become ops of ours (override_ops.h). These are
// compiled to a call of such a kernel (cc/program/kernel_call.h) if it supports the op, and
// otherwise by XLA. For the gradient of a max pool whose windows don't overlap, XLA uses other ops
// than the stock kernel.
#ifndef TF_TPU_EXT_CC_COMPILER_OVERRIDES_TENSORFLOW_KERNELS_H_
#define TF_TPU_EXT_CC_COMPILER_OVERRIDES_TENSORFLOW_KERNELS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"

namespace tf_tpu_ext {

// Our op's name is this prefix and the stock op's name.
inline constexpr char kKernelPrefix[] = "TpuExt>Kernel";

// What the compiler knows about an operand.
struct KernelOperand {
  tensorflow::DataType type = tensorflow::DT_INVALID;
  tensorflow::TensorShape shape;
  // The sizes that an operand like `input_sizes` holds. Empty for all others.
  std::vector<int64_t> sizes;
};

struct KernelChoice {
  tensorflow::NodeDef node;
  // A kernel that runs before it, see KernelCall::before.
  std::optional<tensorflow::NodeDef> before;
  // Its operands, except for sizes, and its result. If the op's type is another, what the kernel
  // takes and gives must be converted.
  tensorflow::DataType type = tensorflow::DT_INVALID;
  tensorflow::TensorShape shape;
  // How much it computes, see KernelCall::work.
  int64_t work = 0;
};

// The number of the op's operand that holds the sizes of its result, or -1.
int SizesOperand(const std::string& op);

// The kernel that computes the op for operands of these shapes, and its result. None if XLA should
// compile the op, because XLA is faster, the kernel does not support it, or the op is in error.
std::optional<KernelChoice> ChooseKernel(const tensorflow::NodeDef& node,
                                         const std::vector<KernelOperand>& operands);

// The height and width of the windows of a MaxPoolGrad that tile its input, which XLA computes
// best: each element is in exactly one of them, and they are small. None for any other op.
std::optional<std::vector<int32_t>> TilesOfMaxPoolGrad(const tensorflow::NodeDef& node,
                                                       const std::vector<KernelOperand>& operands);

// Replaces the ops that a kernel may support with ours.
absl::Status UseTensorFlowKernels(tensorflow::FunctionLibraryDefinition* library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_OVERRIDES_TENSORFLOW_KERNELS_H_
