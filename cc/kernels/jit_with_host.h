// Compiled functions on the CPU that contain outside compilation, which the stock compiler refuses.
#ifndef TF_TPU_EXT_CC_KERNELS_JIT_WITH_HOST_H_
#define TF_TPU_EXT_CC_KERNELS_JIT_WITH_HOST_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {

// Adds to the library a function `name` that does what `function` does, as a TPU computation with
// one replica.
absl::Status AddAsTpuComputation(const std::string& function, const std::string& name,
                                 tensorflow::FunctionLibraryDefinition* library);

// A kernel that runs `function` as such a computation on core 0.
std::unique_ptr<tensorflow::OpKernel> MakeJitWithHostKernel(
    tensorflow::OpKernelConstruction* construction, const tensorflow::NameAttrList& function);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_JIT_WITH_HOST_H_
