// Kernels of ops that the bridge, TPU inference graphs and launch_from_host leave in the host
// graph.
#include <atomic>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "cc/base/machine.h"
#include "cc/device/virtual_device.h"
#include "cc/kernels/core_resource.h"
#include "cc/ops/op_names.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::ResourceHandle;
using tensorflow::Tensor;

// Zeros: what all replicas except the first add to a value that an all-reduce broadcasts.
class DummyInputOp : public OpKernel {
 public:
  explicit DummyInputOp(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("shape", &shape_));
  }

  void Compute(OpKernelContext* context) override {
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape_, &output));
    if (output->TotalBytes() > 0) std::memset(output->data(), 0, output->TotalBytes());
  }

 private:
  tensorflow::TensorShape shape_;
};

// The next core, in turn: spreads calls of a function over the cores.
class NextCoreOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    static std::atomic<uint32_t> next{0};
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &output));
    output->scalar<int32_t>()() = next.fetch_add(1) % GetMachineOptions().cores;
  }
};

// Makes a host handle to a resource of a core, which keeps the resource.
class HostHandleOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  bool IsExpensive() override { return false; }

  void Compute(OpKernelContext* context) override {
    ResourceHandle handle;
    OP_REQUIRES_OK(context, tensorflow::HandleFromInput(context, 0, &handle));
    // A reference-counting handle holds the resource, wherever it lives.
    ResourceHandle on_host = handle;
    if (handle.IsRefCounting()) {
      on_host.set_device(context->device()->name());
    } else {
      auto resource = FindResource(context, handle);
      OP_REQUIRES(context, resource.ok(), DoesNotExist(handle, resource.status()));
      // Takes over the reference, so that the resource lives as long as the handle. Its type is the
      // one named by the core's handle.
      on_host = ResourceHandle::MakeRefCountingHandle(
          resource->release(), context->device()->name(), handle.dtypes_and_shapes(),
          handle.definition_stack_trace());
      on_host.set_container(handle.container());
      on_host.set_name(handle.name());
      on_host.set_hash_code(handle.hash_code());
      on_host.set_maybe_type_name(handle.maybe_type_name());
    }
    Tensor output(tensorflow::DT_RESOURCE, {});
    output.scalar<ResourceHandle>()() = on_host;
    context->set_output(0, output);
  }

 private:
  // Uses the error codes of TensorFlow's kernels that read variables and iterators.
  static absl::Status DoesNotExist(const ResourceHandle& handle, const absl::Status& cause) {
    const bool is_variable = handle.ValidateType<tensorflow::Var>().ok();
    return tf_tpu_ext::DoesNotExist(
        absl::StrCat(is_variable ? "Variable '" : "Resource '", handle.name(), "'"),
        is_variable ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kNotFound,
        handle.device(), cause);
  }
};

class HostBarrierOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext*) override {}
};

REGISTER_KERNEL_BUILDER(Name(kHostHandleOp).Device(tensorflow::DEVICE_CPU), HostHandleOp);
REGISTER_KERNEL_BUILDER(Name("TpuExt>HostBarrier").Device(tensorflow::DEVICE_CPU), HostBarrierOp);
REGISTER_KERNEL_BUILDER(Name("TPUDummyInput").Device(tensorflow::DEVICE_CPU), DummyInputOp);
REGISTER_KERNEL_BUILDER(Name("TPUDummyInput").Device(kTpuDeviceType), DummyInputOp);
REGISTER_KERNEL_BUILDER(Name("TPUOrdinalSelector").Device(tensorflow::DEVICE_CPU), NextCoreOp);
REGISTER_KERNEL_BUILDER(Name("TPURoundRobin").Device(tensorflow::DEVICE_CPU), NextCoreOp);

}  // namespace
}  // namespace tf_tpu_ext
