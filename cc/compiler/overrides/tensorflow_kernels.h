// Which ops of a program run by TensorFlow's own CPU kernels instead of XLA's code.
//
// XLA:CPU's convolutions and their gradients are slow, above all in loops; TensorFlow's, by oneDNN
// or Eigen, are not. Convolutions and pools become ops of ours (override_ops.h), compiled to a call
// of such a kernel (cc/program/kernel_call.h) where it takes the op, and by XLA where not. The
// gradient of a max pool without overlap is computed by XLA in other ops than the stock ones.
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

// The name of our op is this and the stock op's.
inline constexpr char kKernelPrefix[] = "TpuExt>Kernel";

// What the compiler knows of an operand.
struct KernelOperand {
  tensorflow::DataType type = tensorflow::DT_INVALID;
  tensorflow::TensorShape shape;
  // The sizes that an operand like `input_sizes` holds; empty for any other.
  std::vector<int64_t> sizes;
};

struct KernelChoice {
  tensorflow::NodeDef node;
  // A kernel that runs before it, see kKernelBefore.
  std::optional<tensorflow::NodeDef> before;
  // Its result.
  tensorflow::DataType type = tensorflow::DT_INVALID;
  tensorflow::TensorShape shape;
  // How much it computes, see kKernelWork.
  int64_t work = 0;
};

// The operand of the op that holds the sizes of its result, or -1.
int SizesOperand(const std::string& op);

// The kernel that computes the op on operands of these shapes, and its result; none where XLA is to
// do it: XLA is faster, the kernel does not support it, or the op is in error.
std::optional<KernelChoice> ChooseKernel(const tensorflow::NodeDef& node,
                                         const std::vector<KernelOperand>& operands);

// The height and width of the windows of a MaxPoolGrad that tile its input, which XLA computes
// best: no element is in two of them or in none, and they are small. None for any other op.
std::optional<std::vector<int32_t>> TilesOfMaxPoolGrad(const tensorflow::NodeDef& node,
                                                       const std::vector<KernelOperand>& operands);

// Replaces the ops that a kernel may take by ours.
absl::Status UseTensorFlowKernels(tensorflow::FunctionLibraryDefinition* library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_OVERRIDES_TENSORFLOW_KERNELS_H_
