// TPUPartitionedCall: calls a function whose TPU computations run on the core that an input names.
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/kernels/core_function.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/op_requires.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class PartitionedCallOp : public AsyncOpKernel {
 public:
  explicit PartitionedCallOp(OpKernelConstruction* construction) : AsyncOpKernel(construction) {
    tensorflow::NameAttrList function;
    OP_REQUIRES_OK(construction, construction->GetAttr("f", &function));
    function_ = std::make_unique<CoreFunction>(*this, function, function.name(), nullptr);
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    OpInputList arguments;
    OP_REQUIRES_OK_ASYNC(context, context->input_list("args", &arguments), done);
    const Tensor& ordinal = context->input(context->num_inputs() - 1);
    OP_REQUIRES_ASYNC(context, ordinal.NumElements() == 1,
                      absl::InvalidArgumentError(absl::StrCat(
                          name(), " expects one number as device_ordinal, got a tensor of shape ",
                          ordinal.shape().DebugString(), ". Pass the number of a core.")),
                      done);
    function_->Call(context, {arguments.begin(), arguments.end()}, ordinal.flat<int32_t>()(0),
                    std::move(done));
  }

 private:
  std::unique_ptr<CoreFunction> function_;
};

REGISTER_KERNEL_BUILDER(Name("TPUPartitionedCall").Device(tensorflow::DEVICE_CPU),
                        PartitionedCallOp);

}  // namespace
}  // namespace tf_tpu_ext
