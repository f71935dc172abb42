// CPU kernels that update a core's variables, in order with the programs that do so.
#ifndef TF_TPU_EXT_CC_KERNELS_ORDERED_UPDATE_H_
#define TF_TPU_EXT_CC_KERNELS_ORDERED_UPDATE_H_

#include <memory>
#include <string>

#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {

// Whether the op writes to a variable.
bool UpdatesVariable(const std::string& op);

// A kernel on a core that runs `kernel` when no program that updates variables has the core.
// Otherwise a program that has read a variable would overwrite what the kernel has written since.
// Inputs that `kernel` refuses go to `compiled`, if there is one: `kernel` must not have written
// anything by then.
tensorflow::OpKernel* MakeOrderedUpdate(tensorflow::OpKernelConstruction* construction,
                                        std::unique_ptr<tensorflow::OpKernel> kernel,
                                        std::unique_ptr<tensorflow::OpKernel> compiled);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_ORDERED_UPDATE_H_
