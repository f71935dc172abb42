#include "cc/compiler/overrides/dynamic_kernel.h"

#include "xla/hlo/builder/value_inference.h"

namespace tf_tpu_ext {

xla::XlaOp SizeConstant(xla::XlaBuilder* builder, int64_t value) {
  return xla::ConstantR0<int32_t>(builder, static_cast<int32_t>(value));
}

xla::XlaOp Unpadded::real_size(int64_t dimension) const {
  return is_dynamic(dimension) ? size(dimension)
                               : SizeConstant(value.builder(), shape.dimensions(dimension));
}

absl::StatusOr<Unpadded> FillPadding(xla::XlaOp x, xla::XlaOp fill) {
  xla::XlaBuilder* builder = x.builder();
  Unpadded result;
  TF_ASSIGN_OR_RETURN(result.shape, builder->GetShape(x));
  result.value = x;
  const int64_t rank = result.shape.dimensions().size();
  for (int64_t d = 0; d < rank; ++d) {
    const bool dynamic = result.shape.is_dynamic_dimension(d);
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

absl::StatusOr<ShapeValue> ReadShape(tensorflow::XlaOpKernelContext* context, int input) {
  ShapeValue shape;
  TF_RETURN_IF_ERROR(
      context->ConstantInputAsShape(input, &shape.bounds, xla::ValueInferenceMode::kUpperBound));
  TF_RETURN_IF_ERROR(context->ResolveInputDynamismIntoPredVector(input, &shape.dynamic));
  const xla::XlaOp sizes = xla::ConvertElementType(context->Input(input), xla::S32);
  for (int64_t d = 0; d < shape.bounds.dims(); ++d) {
    shape.sizes.push_back(xla::Reshape(xla::SliceInDim(sizes, d, d + 1, 1, 0), {}));
  }
  return shape;
}

}  // namespace tf_tpu_ext
