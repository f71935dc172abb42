// Single ops that a core runs as programs.
#ifndef TF_TPU_EXT_CC_KERNELS_COMPILE_ON_DEMAND_H_
#define TF_TPU_EXT_CC_KERNELS_COMPILE_ON_DEMAND_H_

#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {

// Whether the core must compile the op because the CPU's kernel can't compute it there: that kernel
// is TensorFlow's own compilation on demand, which does not know virtual cores; it only supports
// the channels-last layout; or its results differ from a TPU's.
bool MustCompileOnDemand(const tensorflow::NodeDef& node);

// Whether a core can compile the op with the types of the node.
bool CanCompileOnDemand(const tensorflow::NodeDef& node);

// A kernel that compiles its op for the inputs that it gets and runs it on the core of its device,
// as real TPUs run ops outside of compiled programs. If the op's constants can't be determined,
// returns null and sets the construction's error.
tensorflow::OpKernel* MakeCompileOnDemandKernel(tensorflow::OpKernelConstruction* construction);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_COMPILE_ON_DEMAND_H_
