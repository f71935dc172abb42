// Ops whose stock XLA kernels read the padding of tensors of dynamic size.
//
// In a program that may have such tensors, each becomes an op of ours with the same signature. Its
// kernel is the stock one where all sizes are static; else it reads real elements only, or is an
// error.
#ifndef TF_TPU_EXT_CC_COMPILER_OVERRIDES_DYNAMIC_OPS_H_
#define TF_TPU_EXT_CC_COMPILER_OVERRIDES_DYNAMIC_OPS_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"

namespace tf_tpu_ext {

// Puts our ops in place of the stock ones, if arguments or ops of the program make dynamic sizes.
absl::Status ReplaceOpsOfDynamicSize(const tensorflow::tpu::TPUCompileMetadataProto& metadata,
                                     tensorflow::FunctionLibraryDefinition* library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_OVERRIDES_DYNAMIC_OPS_H_
