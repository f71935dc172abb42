#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc/device/virtual_device.h"
#include "cc/ops/op_names.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::DtypeAndPartialTensorShape;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::ResourceHandle;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::Var;

class VariableHandleOp : public tensorflow::OpKernel {
 public:
  explicit VariableHandleOp(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dtype", &type_.dtype));
    OP_REQUIRES_OK(construction, construction->GetAttr("shape", &type_.shape));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& debug_name = context->input(0);
    OP_REQUIRES(context, tensorflow::TensorShapeUtils::IsScalar(debug_name.shape()),
                absl::InvalidArgumentError(absl::StrCat(name(), " got a debug_name of shape ",
                                                        debug_name.shape().DebugString(),
                                                        "; expected a scalar.")));
    std::string text(debug_name.scalar<tensorflow::tstring>()());
    auto* variable = new Var(type_.dtype, text);
    // The handle owns it.
    const ResourceHandle handle = ResourceHandle::MakeRefCountingHandle<Var>(
        variable, context->device()->name(), {type_}, context->stack_trace());
    // Kernels that look variables up by name find it too.
    OP_REQUIRES_OK(context, context->resource_manager()->CreateUnowned<Var>(
                                handle.container(), handle.name(), variable));
    tensorflow::AllocatorAttributes on_host;
    on_host.set_on_host(true);
    Tensor resource;
    OP_REQUIRES_OK(context, context->allocate_temp(tensorflow::DT_RESOURCE, TensorShape({}),
                                                   &resource, on_host));
    resource.scalar<ResourceHandle>()() = handle;
    context->set_output(0, resource);
  }

 private:
  DtypeAndPartialTensorShape type_;
};

REGISTER_KERNEL_BUILDER(
    Name(kVariableHandleOp).Device(kTpuDeviceType).HostMemory("debug_name").HostMemory("resource"),
    VariableHandleOp);

}  // namespace
}  // namespace tf_tpu_ext
