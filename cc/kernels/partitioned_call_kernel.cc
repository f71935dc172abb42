// TPUPartitionedCall: calls a function whose TPU computations run on the core named by an input.
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cc/base/scalar_input.h"
#include "cc/kernels/core_function.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/op_requires.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

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
    const absl::StatusOr<int32_t> ordinal =
        ScalarInput<int32_t>(*context, context->input(context->num_inputs() - 1), "device_ordinal");
    OP_REQUIRES_OK_ASYNC(context, ordinal.status(), done);
    function_->Call(context, {arguments.begin(), arguments.end()}, *ordinal, std::move(done));
  }

 private:
  std::unique_ptr<CoreFunction> function_;
};

REGISTER_KERNEL_BUILDER(Name("TPUPartitionedCall").Device(tensorflow::DEVICE_CPU),
                        PartitionedCallOp);

}  // namespace
}  // namespace tf_tpu_ext
