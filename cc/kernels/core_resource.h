// Resources of cores, for kernels that may run on the host: core and host share memory, but their
// devices have separate resource managers.
#ifndef TF_TPU_EXT_CC_KERNELS_CORE_RESOURCE_H_
#define TF_TPU_EXT_CC_KERNELS_CORE_RESOURCE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_base.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/lib/core/refcount.h"

namespace tf_tpu_ext {

// The resource of a handle that does not hold it itself, looked up on the device of this process
// that the handle names.
absl::StatusOr<tensorflow::core::RefCountPtr<tensorflow::ResourceBase>> FindResource(
    tensorflow::OpKernelContext* context, const tensorflow::ResourceHandle& handle);

// The error for `what`, such as "Variable 'v'", when it is not on the device.
absl::Status DoesNotExist(absl::string_view what, absl::StatusCode code, absl::string_view device,
                          const absl::Status& cause);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_CORE_RESOURCE_H_
