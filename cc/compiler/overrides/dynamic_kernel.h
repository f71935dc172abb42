// What the XLA kernels for tensors of dynamic size share.
#ifndef TF_TPU_EXT_CC_COMPILER_OVERRIDES_DYNAMIC_KERNEL_H_
#define TF_TPU_EXT_CC_COMPILER_OVERRIDES_DYNAMIC_KERNEL_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc/compiler/overrides/override_kernel.h"
#include "xla/hlo/builder/lib/constants.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape.h"

namespace tf_tpu_ext {

// The name of our op is this and the stock op's.
inline constexpr char kDynamicPrefix[] = "TpuExt>Dynamic";

// A tensor freed of its dynamic dimensions. Elements beyond the real sizes hold the fill value.
struct Unpadded {
  xla::XlaOp value;
  xla::Shape shape;  // static: the bounds
  // By dimension; no op where the dimension was static.
  std::vector<std::pair<bool, xla::XlaOp>> sizes;

  bool is_dynamic(int64_t dimension) const { return sizes[dimension].first; }
  xla::XlaOp size(int64_t dimension) const { return sizes[dimension].second; }
};

inline absl::StatusOr<Unpadded> FillPadding(xla::XlaOp x, xla::XlaOp fill) {
  xla::XlaBuilder* builder = x.builder();
  absl::StatusOr<xla::Shape> shape = builder->GetShape(x);
  if (!shape.ok()) return shape.status();
  Unpadded result;
  result.shape = *shape;
  result.value = x;
  const int64_t rank = shape->dimensions().size();
  for (int64_t d = 0; d < rank; ++d) {
    const bool dynamic = shape->is_dynamic_dimension(d);
    result.sizes.emplace_back(dynamic, dynamic ? xla::GetDimensionSize(x, d) : xla::XlaOp());
    if (dynamic) result.value = xla::RemoveDynamicDimension(result.value, d);
    result.shape.set_dynamic_dimension(d, false);
  }
  xla::Shape positions = result.shape;
  positions.set_element_type(xla::S32);
  for (int64_t d = 0; d < rank; ++d) {
    if (!result.is_dynamic(d)) continue;
    const xla::XlaOp real =
        xla::Lt(xla::Iota(builder, positions, d), result.size(d), /*broadcast_dimensions=*/{});
    result.value = xla::Select(real, result.value, xla::Broadcast(fill, result.shape.dimensions()));
  }
  return result;
}

class DynamicKernel : public OverrideKernel {
 public:
  explicit DynamicKernel(tensorflow::OpKernelConstruction* construction)
      : OverrideKernel(construction, kDynamicPrefix) {}

  void Compile(tensorflow::XlaOpKernelContext* context) final {
    absl::StatusOr<bool> dynamic = HasDynamicInput(context);
    OP_REQUIRES_OK(context, dynamic.status());
    if (*dynamic) {
      CompileDynamic(context);
    } else {
      CompileStock(context);
    }
  }

 protected:
  // The number of an input that holds a shape, which may be one of dynamic sizes.
  virtual int ShapeInput() const { return -1; }

  // Called if an input has a dynamic dimension.
  virtual void CompileDynamic(tensorflow::XlaOpKernelContext* context) = 0;

  // Of an input, which is known to have one.
  static xla::Shape ShapeOf(tensorflow::XlaOpKernelContext* context, int input) {
    return *context->InputXlaShape(input);
  }

 private:
  absl::StatusOr<bool> HasDynamicInput(tensorflow::XlaOpKernelContext* context) const {
    absl::StatusOr<bool> padded = HasPaddedInput(context);
    if (!padded.ok() || *padded) return padded;
    if (ShapeInput() < 0) return false;
    std::vector<bool> dynamic;
    absl::Status status = context->ResolveInputDynamismIntoPredVector(ShapeInput(), &dynamic);
    if (!status.ok()) return status;
    return std::find(dynamic.begin(), dynamic.end(), true) != dynamic.end();
  }
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_OVERRIDES_DYNAMIC_KERNEL_H_
