// Scans and average pools over dimensions of dynamic size.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "cc/compiler/overrides/dynamic_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_helpers.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/util/padding.h"
#include "xla/hlo/builder/lib/arithmetic.h"
#include "xla/hlo/builder/lib/slicing.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::XlaHelpers;
using tensorflow::XlaOpKernelContext;
using Paddings = std::vector<std::pair<int64_t, int64_t>>;

// Cumsum, Cumprod and CumulativeLogsumexp. Padding is filled with the neutral element, which
// changes nothing.
class ScanOp : public DynamicKernel {
 public:
  explicit ScanOp(OpKernelConstruction* construction) : DynamicKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("reverse", &reverse_));
    OP_REQUIRES_OK(construction, construction->GetAttr("exclusive", &exclusive_));
  }

  void CompileDynamic(XlaOpKernelContext* context) override {
    int64_t axis;
    OP_REQUIRES_OK(context, context->ConstantInputAsIntScalar(1, &axis));
    const xla::Shape shape = ShapeOf(context, 0);
    const int64_t rank = shape.dimensions().size();
    if (axis < 0) axis += rank;
    OP_REQUIRES(context, axis >= 0 && axis < rank,
                absl::InvalidArgumentError(
                    absl::StrCat(StockOp(), " ", name(), ": expected an axis from ", -rank, " to ",
                                 rank - 1, "; got ", axis < 0 ? axis - rank : axis, ".")));
    const tensorflow::DataType type = XlaHelpers::SumAccumulationType(context->input_type(0));
    xla::XlaOp neutral;
    const xla::XlaComputation* reducer;
    if (StockOp() == "Cumsum") {
      neutral = XlaHelpers::Zero(context->builder(), type);
      reducer = context->GetOrCreateAdd(type);
    } else if (StockOp() == "Cumprod") {
      neutral = XlaHelpers::One(context->builder(), type);
      reducer = context->GetOrCreateMul(type);
    } else {
      neutral = XlaHelpers::FloatLiteral(context->builder(), type,
                                         -std::numeric_limits<double>::infinity());
      reducer = context->GetOrCreateLogAddExp(type);
    }
    OP_REQUIRES_VALUE(
        const Unpadded x, context,
        FillPadding(XlaHelpers::ConvertElementType(context->Input(0), type), neutral));
    const int64_t size = x.shape.dimensions(axis);
    if (xla::ShapeUtil::ElementsIn(shape) == 0) {
      context->SetOutput(0, context->Input(0));
      return;
    }
    std::vector<int64_t> window(rank, 1);
    window[axis] = size;
    Paddings padding(rank, {0, 0});
    // An exclusive scan starts one element earlier, and drops the last element.
    (reverse_ ? padding[axis].second : padding[axis].first) = size - 1 + exclusive_;
    xla::XlaOp scan = xla::ReduceWindowWithGeneralPadding(
        x.value, neutral, *reducer, window, std::vector<int64_t>(rank, 1),
        /*base_dilations=*/{}, /*window_dilations=*/{}, padding);
    if (exclusive_) {
      const int64_t start = reverse_ ? 1 : 0;
      scan = xla::SliceInDim(scan, start, start + size, 1, axis);
    }
    scan = XlaHelpers::ConvertElementType(scan, context->input_type(0));
    for (int64_t d = 0; d < rank; ++d) {
      if (x.is_dynamic(d)) scan = xla::SetDimensionSize(scan, x.size(d), d);
    }
    context->SetOutput(0, scan);
  }

 private:
  bool reverse_ = false;
  bool exclusive_ = false;
};

// A dimension that windows slide over. It has `size` elements, of which the first `real` are not
// padding. The first window starts `low` elements before the first element.
struct Slide {
  int64_t window;
  int64_t stride;
  int64_t size;
  int64_t count;  // windows over `size` elements
  xla::XlaOp real;
  xla::XlaOp low;
  xla::XlaOp real_count;

  bool trivial() const { return window == 1 && stride == 1; }
  // The number of elements that all windows cover.
  int64_t span() const { return (count - 1) * stride + window; }
};

class AvgPoolBase : public DynamicKernel {
 public:
  explicit AvgPoolBase(OpKernelConstruction* construction) : DynamicKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("ksize", &windows_));
    OP_REQUIRES_OK(construction, construction->GetAttr("strides", &strides_));
    tensorflow::Padding padding;
    OP_REQUIRES_OK(construction, construction->GetAttr("padding", &padding));
    same_ = padding == tensorflow::SAME;
  }

 protected:
  absl::StatusOr<Slide> MakeSlide(int64_t dimension, int64_t size, xla::XlaOp real) const {
    Slide slide{windows_[dimension], strides_[dimension], size, 0, real, {}, {}};
    if (slide.window < 1 || slide.stride < 1 || (!same_ && size < slide.window)) {
      return absl::InvalidArgumentError(
          absl::StrCat(StockOp(), " ", name(), ": dimension ", dimension, " has at most ", size,
                       " elements; a window has ", slide.window, " and moves by ", slide.stride,
                       ". Use padding=\"SAME\" or smaller windows."));
    }
    const auto number = [real](int64_t value) { return SizeConstant(real.builder(), value); };
    const xla::XlaOp zero = number(0);
    if (same_) {
      slide.count = (size + slide.stride - 1) / slide.stride;
      slide.real_count = (real + number(slide.stride - 1)) / number(slide.stride);
      const xla::XlaOp missing =
          (slide.real_count - number(1)) * number(slide.stride) + number(slide.window) - real;
      slide.low = xla::Min(xla::Max(missing, zero) / number(2), number(slide.window - 1));
    } else {
      slide.count = (size - slide.window) / slide.stride + 1;
      slide.real_count =
          xla::Max((real - number(slide.window)) / number(slide.stride) + number(1), zero);
      // Division rounds toward zero.
      slide.real_count = xla::Select(xla::Lt(real, number(slide.window)), zero, slide.real_count);
      slide.low = zero;
    }
    return slide;
  }

  // Cuts or pads `x` with zeros to the elements that the windows cover.
  static xla::XlaOp UnderWindows(xla::XlaOp x, xla::XlaOp zero, const std::vector<Slide>& slides) {
    for (size_t d = 0; d < slides.size(); ++d) {
      const Slide& slide = slides[d];
      if (slide.trivial()) continue;
      x = xla::PadInDim(x, zero, d, slide.window - 1, slide.window - 1);
      const xla::XlaOp start =
          slide.low * SizeConstant(x.builder(), -1) + SizeConstant(x.builder(), slide.window - 1);
      x = SliceAt(x, start, slide.span(), d);
    }
    return x;
  }

  static xla::XlaOp SliceAt(xla::XlaOp x, xla::XlaOp start, int64_t size, int64_t dimension) {
    const xla::Shape shape = *x.builder()->GetShape(x);
    std::vector<int64_t> sizes(shape.dimensions().begin(), shape.dimensions().end());
    std::vector<xla::XlaOp> starts(sizes.size(), SizeConstant(x.builder(), 0));
    sizes[dimension] = size;
    starts[dimension] = start;
    return xla::DynamicSlice(x, starts, sizes);
  }

  xla::XlaOp SumOfWindows(xla::XlaOp x, xla::XlaOp zero, const xla::XlaComputation& add) const {
    return xla::ReduceWindowWithGeneralPadding(
        x, zero, add, Widen(windows_), Widen(strides_), /*base_dilations=*/{},
        /*window_dilations=*/{}, Paddings(windows_.size(), {0, 0}));
  }

  // The number of real elements in each window, but at least one, in the shape of the result.
  xla::XlaOp Counts(XlaOpKernelContext* context, tensorflow::DataType type,
                    const std::vector<Slide>& slides, const xla::XlaComputation& add) const {
    xla::XlaBuilder* builder = context->builder();
    const xla::XlaOp zero = XlaHelpers::Zero(builder, type);
    const xla::XlaOp one = XlaHelpers::One(builder, type);
    std::vector<int64_t> sizes, counts;
    for (const Slide& slide : slides) {
      sizes.push_back(slide.size);
      counts.push_back(slide.count);
    }
    xla::XlaOp real = xla::Broadcast(one, sizes);
    for (size_t d = 0; d < slides.size(); ++d) {
      if (slides[d].trivial()) continue;
      const xla::Shape positions = xla::ShapeUtil::MakeShape(xla::S32, sizes);
      real = xla::Select(xla::Lt(xla::Iota(builder, positions, d), slides[d].real), real,
                         xla::Broadcast(zero, sizes));
    }
    return xla::Max(SumOfWindows(UnderWindows(real, zero, slides), zero, add),
                    xla::Broadcast(one, counts));
  }

  static std::vector<int64_t> Widen(const std::vector<int32_t>& values) {
    return std::vector<int64_t>(values.begin(), values.end());
  }

  std::vector<int32_t> windows_;
  std::vector<int32_t> strides_;
  bool same_ = false;
};

class AvgPoolOp : public AvgPoolBase {
 public:
  using AvgPoolBase::AvgPoolBase;

  void CompileDynamic(XlaOpKernelContext* context) override {
    const tensorflow::DataType type = XlaHelpers::SumAccumulationType(context->input_type(0));
    const xla::XlaOp zero = XlaHelpers::Zero(context->builder(), type);
    const xla::XlaComputation& add = *context->GetOrCreateAdd(type);
    OP_REQUIRES_VALUE(const Unpadded x, context,
                      FillPadding(XlaHelpers::ConvertElementType(context->Input(0), type), zero));
    OP_REQUIRES(context, x.sizes.size() == windows_.size(),
                absl::InvalidArgumentError(absl::StrCat(
                    StockOp(), " ", name(), ": expected an input of rank ", windows_.size(),
                    ", that of ksize; got ", x.shape.ToString(), ".")));
    std::vector<Slide> slides;
    for (size_t d = 0; d < windows_.size(); ++d) {
      OP_REQUIRES_VALUE(const Slide slide, context,
                        MakeSlide(d, x.shape.dimensions(d), x.real_size(d)));
      slides.push_back(slide);
    }
    xla::XlaOp mean = SumOfWindows(UnderWindows(x.value, zero, slides), zero, add) /
                      Counts(context, type, slides, add);
    mean = XlaHelpers::ConvertElementType(mean, context->input_type(0));
    for (size_t d = 0; d < slides.size(); ++d) {
      if (x.is_dynamic(d)) mean = xla::SetDimensionSize(mean, slides[d].real_count, d);
    }
    context->SetOutput(0, mean);
  }
};

class AvgPoolGradOp : public AvgPoolBase {
 public:
  using AvgPoolBase::AvgPoolBase;

  int ShapeInput() const override { return 0; }

  void CompileDynamic(XlaOpKernelContext* context) override {
    xla::XlaBuilder* builder = context->builder();
    const tensorflow::DataType type = XlaHelpers::SumAccumulationType(context->input_type(1));
    const xla::XlaOp zero = XlaHelpers::Zero(builder, type);
    const xla::XlaComputation& add = *context->GetOrCreateAdd(type);
    OP_REQUIRES_VALUE(const ShapeValue shape, context, ReadShape(context, 0));
    OP_REQUIRES_VALUE(const Unpadded gradient, context,
                      FillPadding(XlaHelpers::ConvertElementType(context->Input(1), type), zero));
    const size_t rank = windows_.size();
    OP_REQUIRES(
        context, shape.sizes.size() == rank && gradient.sizes.size() == rank,
        absl::InvalidArgumentError(absl::StrCat(
            StockOp(), " ", name(), ": expected a gradient and an original shape of rank ", rank,
            "; got ", gradient.shape.ToString(), " and ", shape.sizes.size(), " sizes.")));
    std::vector<Slide> slides;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t bound = shape.bounds.dim_size(d);
      OP_REQUIRES_VALUE(const Slide slide, context, MakeSlide(d, bound, shape.sizes[d]));
      OP_REQUIRES(context, slide.count == gradient.shape.dimensions(d),
                  absl::InvalidArgumentError(absl::StrCat(
                      StockOp(), " ", name(), ": dimension ", d, " of the gradient has ",
                      gradient.shape.dimensions(d), " elements; the pool of at most ", bound,
                      " elements has ", slide.count, ".")));
      slides.push_back(slide);
    }
    // Each element of a window gets the same share of the window's gradient. This is a sum over
    // windows of the gradient dilated by the strides.
    xla::XlaOp share = gradient.value / Counts(context, type, slides, add);
    Paddings padding;
    for (int32_t window : windows_) padding.emplace_back(window - 1, window - 1);
    xla::XlaOp result = xla::ReduceWindowWithGeneralPadding(
        share, zero, add, Widen(windows_), std::vector<int64_t>(rank, 1),
        /*base_dilations=*/Widen(strides_), /*window_dilations=*/{}, padding);
    for (size_t d = 0; d < rank; ++d) {
      const Slide& slide = slides[d];
      if (slide.trivial()) continue;
      // From the elements under the windows back to those of the input.
      const int64_t missing = std::max<int64_t>(0, slide.size + slide.window - 1 - slide.span());
      result = SliceAt(xla::PadInDim(result, zero, d, 0, missing), slide.low, slide.size, d);
    }
    result = XlaHelpers::ConvertElementType(result, context->input_type(1));
    for (size_t d = 0; d < rank; ++d) {
      if (shape.dynamic[d] || gradient.is_dynamic(d)) {
        result = xla::SetDimensionSize(result, slides[d].real, d);
      }
    }
    context->SetOutput(0, result);
  }
};

REGISTER_XLA_OP(Name("TpuExt>DynamicCumsum").CompileTimeConstantInput("axis"), ScanOp);
REGISTER_XLA_OP(Name("TpuExt>DynamicCumprod").CompileTimeConstantInput("axis"), ScanOp);
REGISTER_XLA_OP(Name("TpuExt>DynamicCumulativeLogsumexp").CompileTimeConstantInput("axis"), ScanOp);
REGISTER_XLA_OP(Name("TpuExt>DynamicAvgPool"), AvgPoolOp);
REGISTER_XLA_OP(Name("TpuExt>DynamicAvgPool3D"), AvgPoolOp);
REGISTER_XLA_OP(Name("TpuExt>DynamicAvgPoolGrad").CompileTimeConstantInput("orig_input_shape"),
                AvgPoolGradOp);
REGISTER_XLA_OP(Name("TpuExt>DynamicAvgPool3DGrad").CompileTimeConstantInput("orig_input_shape"),
                AvgPoolGradOp);

}  // namespace
}  // namespace tf_tpu_ext
