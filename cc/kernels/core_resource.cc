#include "cc/kernels/core_resource.h"

#include "absl/strings/str_cat.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/device_mgr.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_tpu_ext {

using tensorflow::ResourceBase;
using tensorflow::ResourceHandle;

absl::StatusOr<tensorflow::core::RefCountPtr<ResourceBase>> FindResource(
    tensorflow::OpKernelContext* context, const ResourceHandle& handle) {
  tensorflow::Device* device = nullptr;
  TF_RETURN_IF_ERROR(
      context->function_library()->device_mgr()->LookupDevice(handle.device(), &device));
  ResourceBase* resource = nullptr;
  TF_RETURN_IF_ERROR(device->resource_manager()->Lookup(handle, &resource));
  // Lookup has taken a reference.
  return tensorflow::core::RefCountPtr<ResourceBase>(resource);
}

absl::Status DoesNotExist(absl::string_view what, absl::StatusCode code, absl::string_view device,
                          const absl::Status& cause) {
  return absl::Status(
      code, absl::StrCat(what, " does not exist on ", device,
                         ". Create and initialize it before the step. (", cause.message(), ")"));
}

}  // namespace tf_tpu_ext
