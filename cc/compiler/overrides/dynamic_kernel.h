// What the XLA kernels for tensors of dynamic size have in common.
#ifndef TF_TPU_EXT_CC_COMPILER_OVERRIDES_DYNAMIC_KERNEL_H_
#define TF_TPU_EXT_CC_COMPILER_OVERRIDES_DYNAMIC_KERNEL_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cc/compiler/overrides/override_kernel.h"
#include "tensorflow/core/framework/op_requires.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "xla/hlo/builder/lib/constants.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {

// Our op's name is this prefix and the stock op's name.
inline constexpr char kDynamicPrefix[] = "TpuExt>Dynamic";

// A scalar of the type of dimension sizes.
xla::XlaOp SizeConstant(xla::XlaBuilder* builder, int64_t value);

// A tensor without dynamic dimensions. Elements beyond the real sizes hold the fill value.
struct Unpadded {
  xla::XlaOp value;
  xla::Shape shape;  // static: the bounds
  // By dimension. Static dimensions have no op.
  std::vector<std::pair<bool, xla::XlaOp>> sizes;

  bool is_dynamic(int64_t dimension) const { return sizes[dimension].first; }
  // The size of a dynamic dimension.
  xla::XlaOp size(int64_t dimension) const { return sizes[dimension].second; }
  // The size of any dimension.
  xla::XlaOp real_size(int64_t dimension) const;
};

absl::StatusOr<Unpadded> FillPadding(xla::XlaOp x, xla::XlaOp fill);

// An input that holds a shape, possibly one with dynamic sizes.
struct ShapeValue {
  tensorflow::TensorShape bounds;
  // By dimension.
  std::vector<bool> dynamic;
  std::vector<xla::XlaOp> sizes;
};

absl::StatusOr<ShapeValue> ReadShape(tensorflow::XlaOpKernelContext* context, int input);

class DynamicKernel : public OverrideKernel {
 public:
  explicit DynamicKernel(tensorflow::OpKernelConstruction* construction)
      : OverrideKernel(construction, kDynamicPrefix) {}

  void Compile(tensorflow::XlaOpKernelContext* context) final {
    OP_REQUIRES_VALUE(const bool dynamic, context, HasDynamicInput(context));
    if (dynamic) {
      CompileDynamic(context);
    } else {
      CompileStock(context);
    }
  }

 protected:
  // The number of an input that holds a shape, possibly one with dynamic sizes.
  virtual int ShapeInput() const { return -1; }

  // Called if an input has a dynamic dimension.
  virtual void CompileDynamic(tensorflow::XlaOpKernelContext* context) = 0;

  // The shape of an input, which must be known to have one.
  static xla::Shape ShapeOf(tensorflow::XlaOpKernelContext* context, int input) {
    return *context->InputXlaShape(input);
  }

 private:
  absl::StatusOr<bool> HasDynamicInput(tensorflow::XlaOpKernelContext* context) const {
    TF_ASSIGN_OR_RETURN(const bool padded, HasPaddedInput(context));
    if (padded || ShapeInput() < 0) return padded;
    std::vector<bool> dynamic;
    TF_RETURN_IF_ERROR(context->ResolveInputDynamismIntoPredVector(ShapeInput(), &dynamic));
    return std::find(dynamic.begin(), dynamic.end(), true) != dynamic.end();
  }
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_OVERRIDES_DYNAMIC_KERNEL_H_
