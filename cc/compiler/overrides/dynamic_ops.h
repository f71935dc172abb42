// Ops whose stock XLA kernels read the padding of tensors of dynamic size.
//
// In a program that may have such tensors, each is replaced with an op of ours that has the same
// signature. If all sizes are static, it uses the stock kernel. Otherwise it reads only real
// elements, or is an error.
#ifndef TF_TPU_EXT_CC_COMPILER_OVERRIDES_DYNAMIC_OPS_H_
#define TF_TPU_EXT_CC_COMPILER_OVERRIDES_DYNAMIC_OPS_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"

namespace tf_tpu_ext {

// Replaces the stock ops with ours if arguments or ops of the program produce dynamic sizes.
absl::Status ReplaceOpsOfDynamicSize(const tensorflow::tpu::TPUCompileMetadataProto& metadata,
                                     tensorflow::FunctionLibraryDefinition* library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_OVERRIDES_DYNAMIC_OPS_H_
