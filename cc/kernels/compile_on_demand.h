// Single ops that a core runs as programs.
#ifndef TF_TPU_EXT_CC_KERNELS_COMPILE_ON_DEMAND_H_
#define TF_TPU_EXT_CC_KERNELS_COMPILE_ON_DEMAND_H_

#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {

// Whether the core must compile the op, since the CPU's kernel for it does not compute it there:
// that kernel is TensorFlow's own compilation on demand, which knows no virtual cores, it takes no
// other layout than channels last, or its results are others than a TPU's.
bool MustCompileOnDemand(const tensorflow::NodeDef& node);

// Whether a core can compile the op, for the types of the node.
bool CanCompileOnDemand(const tensorflow::NodeDef& node);

// A kernel that compiles its op for the inputs it gets, as real TPUs run ops outside of compiled
// programs, and runs it on the core of its device. Null, and the construction has the error, if the
// op's constants can't be told.
tensorflow::OpKernel* MakeCompileOnDemandKernel(tensorflow::OpKernelConstruction* construction);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_COMPILE_ON_DEMAND_H_
