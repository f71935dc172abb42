// Ops over dimensions of dynamic size that pick elements by position. Also ops that no kernel here
// computes correctly: these are errors.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cc/compiler/overrides/dynamic_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_helpers.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "xla/hlo/builder/lib/arithmetic.h"
#include "xla/hlo/builder/lib/comparators.h"
#include "xla/hlo/builder/lib/slicing.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::XlaHelpers;
using tensorflow::XlaOpKernelContext;

// Gives a static value the dynamic sizes of another value.
xla::XlaOp Resize(xla::XlaOp value, const Unpadded& like) {
  for (size_t d = 0; d < like.sizes.size(); ++d) {
    if (like.is_dynamic(d)) value = xla::SetDimensionSize(value, like.size(d), d);
  }
  return value;
}

class OnesLikeOp : public DynamicKernel {
 public:
  using DynamicKernel::DynamicKernel;
  void CompileDynamic(XlaOpKernelContext* context) override {
    const xla::XlaOp one = XlaHelpers::One(context->builder(), context->input_type(0));
    OP_REQUIRES_VALUE(const Unpadded x, context, FillPadding(context->Input(0), one));
    context->SetOutput(0, Resize(xla::Broadcast(one, x.shape.dimensions()), x));
  }
};

class RollOp : public DynamicKernel {
 public:
  using DynamicKernel::DynamicKernel;
  void CompileDynamic(XlaOpKernelContext* context) override {
    xla::XlaBuilder* builder = context->builder();
    const int64_t shifts = xla::ShapeUtil::ElementsIn(ShapeOf(context, 1));
    std::vector<int64_t> axes;
    OP_REQUIRES_OK(context, context->ConstantInputReshapedToIntVector(2, &axes));
    OP_REQUIRES(
        context, shifts == static_cast<int64_t>(axes.size()),
        absl::InvalidArgumentError(absl::StrCat("Roll ", name(), ": expected a shift for each of ",
                                                axes.size(), " axes; got ", shifts, ".")));
    const xla::XlaOp filler = XlaHelpers::Zero(builder, context->input_type(0));
    OP_REQUIRES_VALUE(const Unpadded x, context, FillPadding(context->Input(0), filler));
    const int64_t rank = x.sizes.size();
    const xla::XlaOp shift =
        xla::Reshape(xla::ConvertElementType(context->Input(1), xla::S32), {shifts});
    xla::XlaOp rolled = x.value;
    for (size_t i = 0; i < axes.size(); ++i) {
      const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
      OP_REQUIRES(
          context, axis >= 0 && axis < rank,
          absl::InvalidArgumentError(absl::StrCat("Roll ", name(), ": axis ", axes[i],
                                                  " is not from ", -rank, " to ", rank - 1, ".")));
      const int64_t bound = x.shape.dimensions(axis);
      if (bound == 0) continue;
      const xla::XlaOp size = xla::Max(x.real_size(axis), SizeConstant(builder, 1));
      const xla::XlaOp by = xla::Reshape(xla::SliceInDim(shift, i, i + 1, 1, 0), {});
      const xla::XlaOp source =
          xla::Rem(xla::Sub(xla::Iota(builder, xla::S32, bound), xla::Rem(by, size)) + size, size);
      rolled = xla::TorchIndexSelect(rolled, source, axis);
    }
    context->SetOutput(0, Resize(rolled, x));
  }
};

class MirrorPadOp : public DynamicKernel {
 public:
  explicit MirrorPadOp(OpKernelConstruction* construction) : DynamicKernel(construction) {
    std::string mode;
    OP_REQUIRES_OK(construction, construction->GetAttr("mode", &mode));
    // A symmetric border includes the edge itself.
    skipped_ = mode == "SYMMETRIC" ? 0 : 1;
  }

  void CompileDynamic(XlaOpKernelContext* context) override {
    xla::XlaBuilder* builder = context->builder();
    xla::Literal paddings;
    OP_REQUIRES_OK(context, context->ConstantInputAsInt64Literal(1, &paddings));
    const xla::XlaOp filler = XlaHelpers::Zero(builder, context->input_type(0));
    OP_REQUIRES_VALUE(const Unpadded x, context, FillPadding(context->Input(0), filler));
    xla::XlaOp padded = x.value;
    for (int64_t d = 0; d < static_cast<int64_t>(x.sizes.size()); ++d) {
      const int64_t before = paddings.Get<int64_t>({d, 0});
      const int64_t after = paddings.Get<int64_t>({d, 1});
      const int64_t bound = x.shape.dimensions(d);
      OP_REQUIRES(context, before >= 0 && after >= 0 && std::max(before, after) <= bound - skipped_,
                  absl::InvalidArgumentError(absl::StrCat(
                      "MirrorPad ", name(), ": paddings ", before, " and ", after, " of dimension ",
                      d, " must be from 0 to ", bound - skipped_, ".")));
      if (before + after == 0) continue;
      const xla::XlaOp size = x.real_size(d);
      const xla::XlaOp zero = SizeConstant(builder, 0);
      const xla::XlaOp one = SizeConstant(builder, 1);
      const xla::XlaOp position = xla::Sub(xla::Iota(builder, xla::S32, bound + before + after),
                                           SizeConstant(builder, before));
      const xla::XlaOp mirrored_before =
          xla::Sub(SizeConstant(builder, skipped_ - 1), position, /*broadcast_dimensions=*/{});
      const xla::XlaOp mirrored_after =
          xla::Sub(size + size - SizeConstant(builder, 1 + skipped_), position);
      xla::XlaOp source = xla::Select(xla::Lt(position, zero), mirrored_before, position);
      source = xla::Select(xla::Lt(position, size), source, mirrored_after);
      source = xla::Clamp(zero, source, xla::Max(size - one, zero));
      padded = xla::TorchIndexSelect(padded, source, d);
    }
    for (size_t d = 0; d < x.sizes.size(); ++d) {
      if (!x.is_dynamic(d)) continue;
      const int64_t dimension = d;
      const int64_t border =
          paddings.Get<int64_t>({dimension, 0}) + paddings.Get<int64_t>({dimension, 1});
      padded = xla::SetDimensionSize(padded, x.size(d) + SizeConstant(builder, border), d);
    }
    context->SetOutput(0, padded);
  }

 private:
  int64_t skipped_ = 1;
};

class WhereOp : public DynamicKernel {
 public:
  using DynamicKernel::DynamicKernel;
  void CompileDynamic(XlaOpKernelContext* context) override {
    xla::XlaBuilder* builder = context->builder();
    const xla::XlaOp filler = XlaHelpers::Zero(builder, context->input_type(0));
    OP_REQUIRES_VALUE(const Unpadded x, context, FillPadding(context->Input(0), filler));
    const int64_t elements = xla::ShapeUtil::ElementsIn(x.shape);
    const int64_t rank = x.sizes.size();
    const xla::XlaOp flat = xla::Reshape(x.value, {elements});
    const xla::XlaOp chosen = xla::Ne(flat, xla::ZerosLike(flat));
    const xla::XlaOp behind = xla::Broadcast(SizeConstant(builder, elements), {elements});
    // The numbers of the chosen elements come first, in order.
    const xla::XlaOp numbers =
        xla::Sort({xla::Select(chosen, xla::Iota(builder, xla::S32, elements), behind)},
                  xla::CreateScalarLtComputation({xla::S32}, builder), 0);
    std::vector<xla::XlaOp> columns;
    int64_t stride = elements;
    for (int64_t d = 0; d < rank; ++d) {
      const int64_t size = std::max<int64_t>(1, x.shape.dimensions(d));
      stride /= size;
      const xla::XlaOp position =
          xla::Rem(xla::Div(numbers, SizeConstant(builder, std::max<int64_t>(1, stride))),
                   SizeConstant(builder, size));
      columns.push_back(xla::Reshape(position, {elements, 1}));
    }
    OP_REQUIRES(context, elements > 0 && rank > 0,
                absl::InvalidArgumentError(
                    absl::StrCat("Where ", name(), ": expected a condition with elements; got ",
                                 x.shape.ToString(), ".")));
    const xla::XlaOp count =
        xla::ReduceAll(xla::ConvertElementType(chosen, xla::S32), SizeConstant(builder, 0),
                       xla::CreateScalarAddComputation(xla::S32, builder));
    const xla::XlaOp positions =
        xla::ConvertElementType(xla::ConcatInDim(builder, columns, 1), xla::S64);
    context->SetOutput(0, xla::SetDimensionSize(positions, count, 0));
  }
};

// Ops that would read padding or lose a dynamic size.
class RefusedOp : public DynamicKernel {
 public:
  using DynamicKernel::DynamicKernel;
  void CompileDynamic(XlaOpKernelContext* context) override {
    const std::string op = StockOp();
    const xla::Shape shape = ShapeOf(context, 0);
    const int64_t rank = shape.dimensions().size();
    int64_t inner = rank;
    if (op.rfind("MatrixDiagPart", 0) == 0) {
      inner = 2;
    } else if (op.rfind("MatrixDiag", 0) == 0) {
      inner = 1;
    }
    for (int64_t d = std::max<int64_t>(0, rank - inner); d < rank; ++d) {
      OP_REQUIRES(context, !shape.is_dynamic_dimension(d),
                  absl::InvalidArgumentError(absl::StrCat(
                      op, " ", name(), " cannot take an input whose dimension ", d,
                      " has a size known only at run time: ", shape.ToString(),
                      ". Give it a static shape, mask the padding yourself, or run it on the "
                      "host by tf.tpu.outside_compilation.")));
    }
    CompileStock(context);
  }
};

REGISTER_XLA_OP(Name("TpuExt>DynamicOnesLike"), OnesLikeOp);
REGISTER_XLA_OP(Name("TpuExt>DynamicRoll").CompileTimeConstantInput("axis"), RollOp);
REGISTER_XLA_OP(Name("TpuExt>DynamicMirrorPad").CompileTimeConstantInput("paddings"), MirrorPadOp);
REGISTER_XLA_OP(Name("TpuExt>DynamicWhere"), WhereOp);
REGISTER_XLA_OP(Name("TpuExt>DynamicUnique"), RefusedOp);
REGISTER_XLA_OP(Name("TpuExt>DynamicUniqueV2").CompileTimeConstantInput("axis"), RefusedOp);
REGISTER_XLA_OP(Name("TpuExt>DynamicMatrixDiag"), RefusedOp);
REGISTER_XLA_OP(Name("TpuExt>DynamicMatrixDiagV2")
                    .CompileTimeConstantInput("k")
                    .CompileTimeConstantInput("num_rows")
                    .CompileTimeConstantInput("num_cols")
                    .CompileTimeConstantInput("padding_value"),
                RefusedOp);
REGISTER_XLA_OP(Name("TpuExt>DynamicMatrixDiagV3")
                    .CompileTimeConstantInput("k")
                    .CompileTimeConstantInput("num_rows")
                    .CompileTimeConstantInput("num_cols")
                    .CompileTimeConstantInput("padding_value"),
                RefusedOp);
REGISTER_XLA_OP(Name("TpuExt>DynamicMatrixDiagPart"), RefusedOp);
REGISTER_XLA_OP(Name("TpuExt>DynamicMatrixDiagPartV2")
                    .CompileTimeConstantInput("k")
                    .CompileTimeConstantInput("padding_value"),
                RefusedOp);
REGISTER_XLA_OP(Name("TpuExt>DynamicMatrixDiagPartV3")
                    .CompileTimeConstantInput("k")
                    .CompileTimeConstantInput("padding_value"),
                RefusedOp);

}  // namespace
}  // namespace tf_tpu_ext
