#ifndef TF_TPU_EXT_CC_KERNELS_CORE_PLACEMENT_H_
#define TF_TPU_EXT_CC_KERNELS_CORE_PLACEMENT_H_

#include "absl/status/status.h"
#include "cc/base/machine.h"
#include "tensorflow/core/framework/function.h"

namespace tf_tpu_ext {

// Places every TPU computation in the library on core `ordinal` of a machine of that shape. A
// replica of n cores goes to the group of n cores that contains this core: the first n, the next n,
// and so on. Replaces any placement that the computations had.
//
// Returns InvalidArgument if there is no such core, or if a computation has several replicas.
absl::Status PlaceOnCore(int ordinal, const Mesh& mesh,
                         tensorflow::FunctionLibraryDefinition* library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_CORE_PLACEMENT_H_
