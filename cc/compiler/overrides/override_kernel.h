// The XLA kernel of an override, see override_ops.h. It can always delegate to the stock op's
// kernel.
#ifndef TF_TPU_EXT_CC_COMPILER_OVERRIDES_OVERRIDE_KERNEL_H_
#define TF_TPU_EXT_CC_COMPILER_OVERRIDES_OVERRIDE_KERNEL_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/strip.h"
#include "llvm/ADT/StringRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/shape.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {

class OverrideKernel : public tensorflow::XlaOpKernel {
 public:
  // The op's name is the prefix and the stock op's name.
  OverrideKernel(tensorflow::OpKernelConstruction* construction, absl::string_view prefix)
      : XlaOpKernel(construction), node_(construction->def()) {
    node_.set_op(std::string(absl::StripPrefix(type_string(), prefix)));
    absl::Status status;
    kernel_ = tensorflow::CreateOpKernel(construction->device_type(), construction->device(),
                                         tensorflow::cpu_allocator(), node_,
                                         construction->graph_def_version(), &status);
    OP_REQUIRES_OK(construction, status);
  }

 protected:
  void CompileStock(tensorflow::XlaOpKernelContext* context) {
    kernel_->Compute(context->op_kernel_context());
  }

  const tensorflow::NodeDef& StockNode() const { return node_; }
  const std::string& StockOp() const { return node_.op(); }

  // Whether an input has a dimension of dynamic size.
  static absl::StatusOr<bool> HasPaddedInput(tensorflow::XlaOpKernelContext* context) {
    for (int i = 0; i < context->num_inputs(); ++i) {
      TF_ASSIGN_OR_RETURN(const xla::Shape shape, context->InputXlaShape(i));
      if (!shape.is_static()) return true;
    }
    return false;
  }

 private:
  tensorflow::NodeDef node_;
  std::unique_ptr<tensorflow::OpKernel> kernel_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_OVERRIDES_OVERRIDE_KERNEL_H_
