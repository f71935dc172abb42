// Kernels that run the CPU's kernel on a core, provided that it accepts the inputs.
#ifndef TF_TPU_EXT_CC_KERNELS_CPU_FIRST_H_
#define TF_TPU_EXT_CC_KERNELS_CPU_FIRST_H_

#include <memory>

#include "absl/status/status.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {

// Whether a TPU accepts inputs of the op that the CPU's kernel refuses at run time: labels, counts
// and indices out of range, updates of other shapes, gradients of grouped convolutions, pools over
// channels, algorithms of random numbers.
bool CpuRefusesInputs(const tensorflow::NodeDef& node);

// Whether the error is one by which a CPU kernel refuses its inputs.
bool IsRefusal(const absl::Status& status);

// A kernel that runs `cpu`, or `compiled` for inputs that `cpu` refuses. `compiled` gets the
// original inputs. Neither may have effects other than its outputs.
tensorflow::OpKernel* MakeCpuFirst(tensorflow::OpKernelConstruction* construction,
                                   std::unique_ptr<tensorflow::OpKernel> cpu,
                                   std::unique_ptr<tensorflow::OpKernel> compiled);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_CPU_FIRST_H_
