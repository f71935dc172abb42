// XLA kernels of ops, other than collectives, that TensorFlow can lower for a TPU but that its CPU
// wheel registers without kernels: ResizeNearestNeighborGrad, InplaceUpdate and InplaceAdd.
//
// They share a file because the headers of XLA kernels take 20 s to compile.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "llvm/ADT/StringRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/op_requires.h"
#include "tensorflow/core/framework/types.pb.h"
#include "xla/array2d.h"
#include "xla/hlo/builder/lib/arithmetic.h"
#include "xla/hlo/builder/lib/constants.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/hlo/builder/xla_computation.h"
#include "xla/shape.h"
#include "xla/shape_util.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::XlaOpKernel;
using ::tensorflow::XlaOpKernelContext;

// The dimensions of an image batch that are resized.
constexpr int kHeight = 1;
constexpr int kWidth = 2;

struct Sampling {
  bool align_corners = false;
  bool half_pixel_centers = false;
};

// For each of `resized` pixels of a dimension, the one of the `original` pixels that it was copied
// from. Computed in float like TensorFlow's CPU kernel, because a difference in rounding would
// select another pixel.
std::vector<int64_t> SourcePixels(int64_t original, int64_t resized, const Sampling& sampling) {
  const bool corners = sampling.align_corners && resized > 1;
  const float scale = corners ? static_cast<float>(original - 1) / static_cast<float>(resized - 1)
                              : static_cast<float>(original) / static_cast<float>(resized);
  std::vector<int64_t> sources(resized);
  for (int64_t i = 0; i < resized; ++i) {
    const float position =
        (static_cast<float>(i) + (sampling.half_pixel_centers ? 0.5f : 0.0f)) * scale;
    const float pixel = sampling.align_corners ? std::round(position) : std::floor(position);
    sources[i] = std::min(static_cast<int64_t>(pixel), original - 1);
  }
  return sources;
}

// Sums `grads` along `dimension` over the pixels that share a source. The dimension's size becomes
// `original`.
xla::XlaOp SumBySource(xla::XlaOp grads, int64_t dimension, int64_t original, int64_t resized,
                       const Sampling& sampling, xla::PrimitiveType type) {
  if (original == resized) return grads;
  xla::Array2D<float> selection(original, resized, 0.0f);
  const std::vector<int64_t> sources = SourcePixels(original, resized, sampling);
  for (int64_t i = 0; i < resized; ++i) selection(sources[i], i) = 1.0f;
  const xla::XlaOp matrix =
      xla::ConvertElementType(xla::ConstantR2FromArray2D(grads.builder(), selection), type);

  xla::DotDimensionNumbers contraction;
  contraction.add_lhs_contracting_dimensions(dimension);
  contraction.add_rhs_contracting_dimensions(1);
  xla::PrecisionConfig precision;
  precision.add_operand_precision(xla::PrecisionConfig::HIGHEST);
  precision.add_operand_precision(xla::PrecisionConfig::HIGHEST);
  const xla::XlaOp sum = xla::DotGeneral(grads, matrix, contraction, &precision);
  // The product has its new dimension last.
  std::vector<int64_t> order = {0, 1, 2};
  order.insert(order.begin() + dimension, 3);
  return xla::Transpose(sum, order);
}

class ResizeNearestNeighborGradOp : public XlaOpKernel {
 public:
  explicit ResizeNearestNeighborGradOp(OpKernelConstruction* construction)
      : XlaOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("align_corners", &sampling_.align_corners));
    OP_REQUIRES_OK(construction,
                   construction->GetAttr("half_pixel_centers", &sampling_.half_pixel_centers));
  }

  void Compile(XlaOpKernelContext* context) override {
    OP_REQUIRES_VALUE(const xla::Shape shape, context, context->InputXlaShape("grads"));
    std::vector<int64_t> size;
    OP_REQUIRES_OK(context, context->ConstantInputAsIntVector("size", &size));
    OP_REQUIRES(context,
                shape.dimensions().size() == 4 && !shape.is_dynamic_dimension(kHeight) &&
                    !shape.is_dynamic_dimension(kWidth),
                absl::InvalidArgumentError(absl::StrCat(
                    "ResizeNearestNeighborGrad: expected grads of shape [batch, height, width, "
                    "channels] with a fixed height and width; got ",
                    shape.ToString(),
                    ". Resize images to a size that is known when the program is compiled.")));
    OP_REQUIRES(
        context, size.size() == 2 && size[0] > 0 && size[1] > 0,
        absl::InvalidArgumentError(absl::StrCat(
            "ResizeNearestNeighborGrad: expected a size of two positive numbers, the "
            "original image's [height, width]; got [",
            absl::StrJoin(size, ", "), "]. Pass the shape of the image before it was resized.")));
    // Sums of 16-bit floats are rounded once, at the end.
    const xla::PrimitiveType type = shape.element_type();
    const xla::PrimitiveType sum_type = type == xla::F16 || type == xla::BF16 ? xla::F32 : type;
    xla::XlaOp grads = xla::ConvertElementType(context->Input("grads"), sum_type);
    grads = SumBySource(grads, kHeight, size[0], shape.dimensions(kHeight), sampling_, sum_type);
    grads = SumBySource(grads, kWidth, size[1], shape.dimensions(kWidth), sampling_, sum_type);
    context->SetOutput(0, xla::ConvertElementType(grads, type));
  }

 private:
  Sampling sampling_;
};

// "In place" is historical: both ops return a new tensor, and XLA reuses the old one's memory if
// nothing else reads it.

// Row numbers wrap around, so negative ones count from the end.
xla::XlaOp WrapRows(xla::XlaOp rows, int64_t num_rows) {
  const xla::XlaOp count = xla::ScalarLike(rows, num_rows);
  const xla::XlaOp remainder = xla::Rem(rows, count);
  return xla::Select(xla::Lt(remainder, xla::ScalarLike(rows, 0)), remainder + count, remainder);
}

// x[i, :] = combine(x[i, :], v), where combine returns v or the sum.
class RowUpdateOp : public XlaOpKernel {
 public:
  explicit RowUpdateOp(OpKernelConstruction* construction)
      : XlaOpKernel(construction), add_(type_string() == "InplaceAdd") {}

  void Compile(XlaOpKernelContext* context) override {
    OP_REQUIRES_VALUE(const xla::Shape x, context, context->InputXlaShape("x"));
    OP_REQUIRES_VALUE(const xla::Shape rows, context, context->InputXlaShape("i"));
    OP_REQUIRES_VALUE(const xla::Shape v, context, context->InputXlaShape("v"));
    OP_REQUIRES_OK(context, CheckShapes(x, rows, v));
    if (v.dimensions(0) == 0 || x.dimensions(0) == 0) {
      context->SetOutput(0, context->Input("x"));
      return;
    }
    xla::ScatterDimensionNumbers dimensions;
    for (size_t i = 1; i < x.dimensions().size(); ++i) dimensions.add_update_window_dims(i);
    dimensions.add_inserted_window_dims(0);
    dimensions.add_scatter_dims_to_operand_dims(0);
    dimensions.set_index_vector_dim(1);

    const xla::XlaOp index =
        xla::Reshape(WrapRows(context->Input("i"), x.dimensions(0)), {v.dimensions(0)});
    context->SetOutput(0, xla::Scatter(context->Input("x"), index, context->Input("v"),
                                       Combiner(context->builder(), x.element_type()), dimensions));
  }

 private:
  absl::Status CheckShapes(const xla::Shape& x, const xla::Shape& rows, const xla::Shape& v) const {
    const size_t rank = x.dimensions().size();
    bool fits = rank > 0 && v.dimensions().size() == rank && rows.dimensions().size() <= 1;
    if (fits) {
      const int64_t num_rows = rows.dimensions().empty() ? 1 : rows.dimensions(0);
      fits = v.dimensions(0) == num_rows;
      for (size_t i = 1; i < rank; ++i) fits = fits && v.dimensions(i) == x.dimensions(i);
    }
    if (fits) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(type_string(),
                     ": expected x of shape [rows, ...], i of shape [n] or [], and v of shape "
                     "[n, ...] like rows of x; got x ",
                     x.ToString(), ", i ", rows.ToString(), " and v ", v.ToString(),
                     ". Give v one row for each number in i."));
  }

  // Maps (old, new) to the row's new value.
  xla::XlaComputation Combiner(xla::XlaBuilder* builder, xla::PrimitiveType type) const {
    if (add_) return xla::CreateScalarAddComputation(type, builder);
    auto replace = builder->CreateSubBuilder("replace");
    const xla::Shape scalar = xla::ShapeUtil::MakeShape(type, {});
    xla::Parameter(replace.get(), 0, scalar, "old");
    xla::Parameter(replace.get(), 1, scalar, "new");
    return replace->BuildAndNoteError();
  }

  const bool add_;
};

REGISTER_XLA_OP(Name("ResizeNearestNeighborGrad")
                    .TypeConstraint("T", {tensorflow::DT_HALF, tensorflow::DT_BFLOAT16,
                                          tensorflow::DT_FLOAT, tensorflow::DT_DOUBLE})
                    .CompileTimeConstantInput("size"),
                ResizeNearestNeighborGradOp);

REGISTER_XLA_OP(Name("InplaceUpdate"), RowUpdateOp);
REGISTER_XLA_OP(Name("InplaceAdd"), RowUpdateOp);

}  // namespace
}  // namespace tf_tpu_ext
