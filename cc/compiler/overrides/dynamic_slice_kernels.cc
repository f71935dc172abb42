// Strided slices of dimensions of dynamic size, and their gradients: negative positions count from
// the real end, and all strides are supported.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "cc/compiler/overrides/dynamic_kernel.h"
#include "tensorflow/compiler/tf2xla/literal_util.h"
#include "tensorflow/compiler/tf2xla/xla_helpers.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/util/strided_slice_op.h"
#include "xla/hlo/builder/lib/arithmetic.h"
#include "xla/hlo/builder/lib/slicing.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::Tensor;
using tensorflow::XlaOpKernelContext;

// One dimension of a slice, as written in the program.
struct Range {
  bool from_start = false;  // no begin
  bool to_end = false;      // no end
  bool single = false;      // one element, and the dimension is dropped
  int64_t begin = 0;
  int64_t end = 0;
  int64_t stride = 1;
};

// Computes where a range begins and how many elements it has on a dimension of `size`. Works for
// numbers and for XLA values.
template <typename Number, typename Make, typename Minimum, typename Maximum>
void Resolve(const Range& range, Number size, Make number, Minimum minimum, Maximum maximum,
             Number* start, Number* count) {
  const auto from_end = [&](int64_t position) {
    return position < 0 ? size + number(position) : number(position);
  };
  if (range.single) {
    *start = from_end(range.begin);
    *count = number(1);
    return;
  }
  const bool forward = range.stride > 0;
  const Number low = number(forward ? 0 : -1);
  const Number high = forward ? size : size - number(1);
  const auto clamped = [&](int64_t position) {
    return minimum(maximum(from_end(position), low), high);
  };
  *start = range.from_start ? (forward ? low : high) : clamped(range.begin);
  const Number stop = range.to_end ? (forward ? high : low) : clamped(range.end);
  const Number length = forward ? stop - *start : *start - stop;
  const int64_t step = forward ? range.stride : -range.stride;
  *count = maximum(length + number(step - 1), number(0)) / number(step);
}

struct Positions {
  xla::XlaOp start;
  xla::XlaOp count;
  int64_t max_count = 0;
};

Positions PositionsOf(const Range& range, xla::XlaOp size, int64_t bound) {
  Positions positions;
  xla::XlaBuilder* builder = size.builder();
  Resolve(
      range, size, [builder](int64_t value) { return SizeConstant(builder, value); },
      [](xla::XlaOp a, xla::XlaOp b) { return xla::Min(a, b); },
      [](xla::XlaOp a, xla::XlaOp b) { return xla::Max(a, b); }, &positions.start,
      &positions.count);
  // Tries all sizes: if begin and end count from opposite ends, the largest need not give the
  // longest slice.
  for (int64_t real = 0; real <= bound; ++real) {
    int64_t start, count;
    Resolve(
        range, real, [](int64_t value) { return value; },
        [](int64_t a, int64_t b) { return std::min(a, b); },
        [](int64_t a, int64_t b) { return std::max(a, b); }, &start, &count);
    positions.max_count = std::max(positions.max_count, count);
  }
  return positions;
}

class SliceBase : public DynamicKernel {
 public:
  explicit SliceBase(OpKernelConstruction* construction) : DynamicKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("begin_mask", &begin_mask_));
    OP_REQUIRES_OK(construction, construction->GetAttr("end_mask", &end_mask_));
    OP_REQUIRES_OK(construction, construction->GetAttr("ellipsis_mask", &ellipsis_mask_));
    OP_REQUIRES_OK(construction, construction->GetAttr("new_axis_mask", &new_axis_mask_));
    OP_REQUIRES_OK(construction, construction->GetAttr("shrink_axis_mask", &shrink_axis_mask_));
    OP_REQUIRES_OK(construction, construction->GetAttr("Index", &index_type_));
  }

 protected:
  struct Spec {
    std::vector<Range> ranges;  // by dimension of the sliced tensor
    // By dimension of the result: the dimension of the sliced tensor, or -1 if it is new.
    std::vector<int64_t> sources;
  };

  // Returns false if begin or end is known only at run time.
  absl::StatusOr<bool> Parse(XlaOpKernelContext* context, int first_input,
                             const tensorflow::TensorShape& bounds, Spec* spec) const {
    Tensor tensors[3];
    for (int i = 0; i < 3; ++i) {
      xla::Literal literal;
      std::vector<bool> dynamic;
      TF_RETURN_IF_ERROR(context->ResolveInputDynamismIntoPredVector(first_input + i, &dynamic));
      if (std::find(dynamic.begin(), dynamic.end(), true) != dynamic.end()) return false;
      if (!context->ConstantInput(first_input + i, &literal).ok()) return false;
      TF_RETURN_IF_ERROR(tensorflow::LiteralToHostTensor(literal, index_type_, &tensors[i]));
    }
    tensorflow::PartialTensorShape processing, final_shape;
    bool ignored = false;
    absl::InlinedVector<int64_t, 4> begin, end, strides;
    tensorflow::StridedSliceShapeSpec dense;
    TF_RETURN_IF_ERROR(tensorflow::ValidateStridedSliceOp(
        &tensors[0], &tensors[1], tensors[2], bounds, begin_mask_, end_mask_, ellipsis_mask_,
        new_axis_mask_, shrink_axis_mask_, &processing, &final_shape, &ignored, &ignored, &ignored,
        &begin, &end, &strides, &dense));
    for (int d = 0; d < bounds.dims(); ++d) {
      Range range;
      range.stride = strides[d];
      range.single = dense.shrink_axis_dense_mask & (1 << d);
      const int64_t sparse = dense.processing_to_sparse_mapping[d];
      range.from_start = !range.single && (dense.begin_dense_mask & (1 << d));
      range.to_end = !range.single && (dense.end_dense_mask & (1 << d));
      if (sparse >= 0 && sparse < tensors[0].NumElements()) {
        range.begin = ElementOf(tensors[0], sparse);
        range.end = ElementOf(tensors[1], sparse);
      }
      spec->ranges.push_back(range);
    }
    spec->sources.assign(dense.output_to_processing_mapping.begin(),
                         dense.output_to_processing_mapping.end());
    return true;
  }

 private:
  static int64_t ElementOf(const Tensor& tensor, int64_t index) {
    return tensor.dtype() == tensorflow::DT_INT32 ? tensor.vec<int32_t>()(index)
                                                  : tensor.vec<int64_t>()(index);
  }

  int32_t begin_mask_ = 0;
  int32_t end_mask_ = 0;
  int32_t ellipsis_mask_ = 0;
  int32_t new_axis_mask_ = 0;
  int32_t shrink_axis_mask_ = 0;
  tensorflow::DataType index_type_ = tensorflow::DT_INT32;
};

// A vector of `count` positions: start, start + stride, ...
xla::XlaOp Indices(xla::XlaOp start, int64_t stride, int64_t count) {
  xla::XlaBuilder* builder = start.builder();
  return xla::Add(xla::Iota(builder, xla::S32, count) * SizeConstant(builder, stride), start);
}

class StridedSliceOp : public SliceBase {
 public:
  using SliceBase::SliceBase;

  void CompileDynamic(XlaOpKernelContext* context) override {
    Spec spec;
    OP_REQUIRES_VALUE(
        const bool known, context,
        Parse(context, 1, tensorflow::TensorShape(ShapeOf(context, 0).dimensions()), &spec));
    if (!known) {
      CompileStock(context);
      return;
    }
    const xla::XlaOp zero =
        tensorflow::XlaHelpers::Zero(context->builder(), context->input_type(0));
    OP_REQUIRES_VALUE(const Unpadded x, context, FillPadding(context->Input(0), zero));
    xla::XlaOp slice = x.value;
    std::vector<int64_t> sizes;
    std::vector<xla::XlaOp> counts(spec.ranges.size());
    for (size_t d = 0; d < spec.ranges.size(); ++d) {
      const int64_t bound = x.shape.dimensions(d);
      const Range& range = spec.ranges[d];
      const Positions positions = PositionsOf(range, x.real_size(d), bound);
      if (x.is_dynamic(d) && !range.single) counts[d] = positions.count;
      sizes.push_back(positions.max_count);
      const bool whole = range.from_start && range.to_end && range.stride == 1;
      if (whole) continue;
      if (positions.max_count == 0 || bound == 0) {
        slice = xla::SliceInDim(slice, 0, 0, 1, d);
        continue;
      }
      const xla::XlaOp first = SizeConstant(context->builder(), 0);
      const xla::XlaOp last = SizeConstant(context->builder(), bound - 1);
      const xla::XlaOp indices =
          xla::Clamp(first, Indices(positions.start, range.stride, positions.max_count), last);
      slice = xla::TorchIndexSelect(slice, indices, d);
    }
    std::vector<int64_t> result;
    for (int64_t source : spec.sources) result.push_back(source < 0 ? 1 : sizes[source]);
    slice = xla::Reshape(slice, result);
    for (size_t d = 0; d < spec.sources.size(); ++d) {
      const int64_t source = spec.sources[d];
      if (source >= 0 && counts[source].valid() && result[d] > 0) {
        slice = xla::SetDimensionSize(slice, counts[source], d);
      }
    }
    context->SetOutput(0, slice);
  }
};

class StridedSliceGradOp : public SliceBase {
 public:
  using SliceBase::SliceBase;

  int ShapeInput() const override { return 0; }

  void CompileDynamic(XlaOpKernelContext* context) override {
    OP_REQUIRES_VALUE(const ShapeValue shape, context, ReadShape(context, 0));
    const tensorflow::TensorShape& bounds = shape.bounds;
    Spec spec;
    OP_REQUIRES_VALUE(const bool known, context, Parse(context, 1, bounds, &spec));
    if (!known) {
      CompileStock(context);
      return;
    }
    const xla::XlaOp zero =
        tensorflow::XlaHelpers::Zero(context->builder(), context->input_type(4));
    OP_REQUIRES_VALUE(const Unpadded given, context, FillPadding(context->Input(4), zero));
    std::vector<Positions> positions;
    std::vector<int64_t> sizes;
    for (int d = 0; d < bounds.dims(); ++d) {
      positions.push_back(PositionsOf(spec.ranges[d], shape.sizes[d], bounds.dim_size(d)));
      sizes.push_back(positions[d].max_count);
    }
    int64_t elements = 1;
    for (int64_t size : sizes) elements *= size;
    OP_REQUIRES(context, elements == xla::ShapeUtil::ElementsIn(given.shape),
                absl::InvalidArgumentError(absl::StrCat(
                    StockOp(), " ", name(), ": the gradient ", given.shape.ToString(),
                    " does not fit the slice of a tensor of at most ", bounds.DebugString(), ".")));
    xla::XlaOp gradient = xla::Reshape(given.value, sizes);
    for (int d = 0; d < bounds.dims(); ++d) {
      const Range& range = spec.ranges[d];
      if (range.from_start && range.to_end && range.stride == 1) continue;
      gradient = Spread(context, gradient, positions[d], range.stride, d, bounds.dim_size(d));
    }
    for (int d = 0; d < bounds.dims(); ++d) {
      if (shape.dynamic[d]) gradient = xla::SetDimensionSize(gradient, shape.sizes[d], d);
    }
    context->SetOutput(0, gradient);
  }

 private:
  // Puts the elements of the slice back where they came from, and zeros elsewhere.
  static xla::XlaOp Spread(XlaOpKernelContext* context, xla::XlaOp slice,
                           const Positions& positions, int64_t stride, int64_t dimension,
                           int64_t bound) {
    xla::XlaBuilder* builder = context->builder();
    const xla::Shape shape = *builder->GetShape(slice);
    std::vector<int64_t> sizes(shape.dimensions().begin(), shape.dimensions().end());
    sizes[dimension] = bound;
    const xla::XlaOp zeros =
        xla::Broadcast(tensorflow::XlaHelpers::Zero(builder, context->input_type(4)), sizes);
    if (positions.max_count == 0) return zeros;
    // Updates out of bounds are dropped, so elements after the real ones go there.
    const xla::XlaOp number = xla::Iota(builder, xla::S32, positions.max_count);
    const xla::XlaOp nowhere = xla::Broadcast(SizeConstant(builder, bound), {positions.max_count});
    const xla::XlaOp indices =
        xla::Select(xla::Lt(number, positions.count),
                    Indices(positions.start, stride, positions.max_count), nowhere);
    xla::ScatterDimensionNumbers numbers;
    for (int64_t d = 0; d < static_cast<int64_t>(sizes.size()); ++d) {
      if (d != dimension) numbers.add_update_window_dims(d);
    }
    numbers.add_inserted_window_dims(dimension);
    numbers.add_scatter_dims_to_operand_dims(dimension);
    numbers.set_index_vector_dim(1);
    return xla::Scatter(zeros, indices, slice,
                        xla::CreateScalarAddComputation(shape.element_type(), builder), numbers,
                        /*indices_are_sorted=*/stride > 0, /*unique_indices=*/false);
  }
};

REGISTER_XLA_OP(Name("TpuExt>DynamicStridedSlice")
                    .CompileTimeConstantInput("begin")
                    .CompileTimeConstantInput("end")
                    .CompileTimeConstantInput("strides"),
                StridedSliceOp);
REGISTER_XLA_OP(Name("TpuExt>DynamicStridedSliceGrad")
                    .CompileTimeConstantInput("shape")
                    .CompileTimeConstantInput("begin")
                    .CompileTimeConstantInput("end")
                    .CompileTimeConstantInput("strides"),
                StridedSliceGradOp);

}  // namespace
}  // namespace tf_tpu_ext
