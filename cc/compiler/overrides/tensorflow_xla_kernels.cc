// XLA kernels of the ops that may run on TensorFlow's own kernels.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/compiler/overrides/override_kernel.h"
#include "cc/compiler/overrides/tensorflow_kernels.h"
#include "cc/program/kernel_call.h"
#include "tensorflow/compiler/tf2xla/shape_util.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "xla/hlo/builder/lib/constants.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/layout_util.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::XlaOpKernelContext;
using xla::XlaOp;

// The gradient of a max pool with respect to its input, if its windows tile the input. The first of
// the largest elements of a window gets the window's gradient. Unlike XLA's own select-and-scatter,
// this fuses with the ops before and after it, and reads the input only once.
XlaOp TiledMaxPoolGrad(XlaOp input, XlaOp output, XlaOp gradient,
                       const tensorflow::TensorShape& shape, const std::vector<int32_t>& tile) {
  const int64_t batch = shape.dim_size(0), channels = shape.dim_size(3);
  const int64_t height = shape.dim_size(1), width = shape.dim_size(2);
  const int32_t count = tile[0] * tile[1];
  // The position in each window of the element that gets the gradient. NaN equals nothing.
  XlaOp first = xla::FullLike(xla::ConvertElementType(output, xla::S32), count - 1);
  for (int32_t number = count - 2; number >= 0; --number) {
    const int64_t row = number / tile[1], column = number % tile[1];
    const XlaOp elements = xla::Slice(input, {0, row, column, 0}, {batch, height, width, channels},
                                      {1, tile[0], tile[1], 1});
    first = xla::Select(xla::Eq(elements, output), xla::FullLike(first, number), first);
  }
  const std::vector<int64_t> tiled = {batch,           height / tile[0], tile[0],
                                      width / tile[1], tile[1],          channels};
  const auto spread = [&](XlaOp of_windows) {
    return xla::BroadcastInDim(of_windows, tiled, {0, 1, 3, 5});
  };
  const xla::Shape numbers = xla::ShapeUtil::MakeShape(xla::S32, tiled);
  XlaOp number = xla::Iota(input.builder(), numbers, 2);
  number = number * xla::FullLike(number, tile[1]) + xla::Iota(input.builder(), numbers, 4);
  const XlaOp gradients = spread(gradient);
  return xla::Reshape(
      xla::Select(xla::Eq(spread(first), number), gradients, xla::ZerosLike(gradients)),
      shape.dim_sizes());
}

class TensorFlowKernelOverride : public OverrideKernel {
 public:
  explicit TensorFlowKernelOverride(tensorflow::OpKernelConstruction* construction)
      : OverrideKernel(construction, kKernelPrefix) {}

  void Compile(XlaOpKernelContext* context) override {
    absl::StatusOr<bool> padded = HasPaddedInput(context);
    OP_REQUIRES_OK(context, padded.status());
    std::vector<KernelOperand> operands;
    if (*padded || !Describe(context, &operands)) return CompileStock(context);
    if (const auto tiles = TilesOfMaxPoolGrad(StockNode(), operands)) {
      return context->SetOutput(0, TiledMaxPoolGrad(context->Input(0), context->Input(1),
                                                    context->Input(2), operands[0].shape, *tiles));
    }
    std::optional<KernelChoice> choice = ChooseKernel(StockNode(), operands);
    if (!choice) return CompileStock(context);
    OP_REQUIRES_OK(context, EmitCall(context, operands, *choice));
  }

 private:
  // Returns false if an operand that must be known is not.
  bool Describe(XlaOpKernelContext* context, std::vector<KernelOperand>* operands) const {
    const int sizes = SizesOperand(StockOp());
    for (int i = 0; i < context->num_inputs(); ++i) {
      KernelOperand operand;
      operand.type = context->input_type(i);
      absl::StatusOr<xla::Shape> shape = context->InputXlaShape(i);
      if (!shape.ok() || !tensorflow::XLAShapeToTensorShape(*shape, &operand.shape).ok()) {
        return false;
      }
      if (i == sizes && !context->ConstantInputAsIntVector(i, &operand.sizes).ok()) return false;
      operands->push_back(std::move(operand));
    }
    return true;
  }

  absl::Status EmitCall(XlaOpKernelContext* context, const std::vector<KernelOperand>& operands,
                        const KernelChoice& choice) const {
    xla::XlaBuilder* builder = context->builder();
    xla::PrimitiveType type;
    TF_RETURN_IF_ERROR(tensorflow::DataTypeToPrimitiveType(choice.type, &type));
    std::vector<XlaOp> inputs;
    std::vector<xla::Shape> shapes;
    for (int i = 0; i < context->num_inputs(); ++i) {
      if (i == SizesOperand(StockOp())) {
        const auto& sizes = operands[i].sizes;
        inputs.push_back(
            xla::ConstantR1<int32_t>(builder, std::vector<int32_t>(sizes.begin(), sizes.end())));
      } else {
        inputs.push_back(xla::ConvertElementType(context->Input(i), type));
      }
      TF_ASSIGN_OR_RETURN(xla::Shape shape, builder->GetShape(inputs.back()));
      xla::LayoutUtil::SetToDefaultLayout(&shape);
      shapes.push_back(std::move(shape));
    }
    xla::Shape result;
    TF_RETURN_IF_ERROR(tensorflow::TensorShapeToXLAShape(choice.type, choice.shape, &result));
    xla::LayoutUtil::SetToDefaultLayout(&result);
    const KernelCall call{StockOp(), name(), choice.node, choice.before, choice.work};
    const XlaOp output =
        xla::CustomCallWithLayout(builder, kKernelTarget, inputs, result, shapes, Encode(call),
                                  /*has_side_effect=*/false, /*output_operand_aliasing=*/{},
                                  /*literal=*/nullptr, xla::CustomCallSchedule::SCHEDULE_NONE,
                                  xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
    context->SetOutput(0, xla::ConvertElementType(output, context->output_xla_type(0)));
    return absl::OkStatus();
  }
};

REGISTER_XLA_OP(Name("TpuExt>KernelConv2D"), TensorFlowKernelOverride);
REGISTER_XLA_OP(Name("TpuExt>KernelConv2DBackpropInput").CompileTimeConstantInput("input_sizes"),
                TensorFlowKernelOverride);
REGISTER_XLA_OP(Name("TpuExt>KernelConv2DBackpropFilter").CompileTimeConstantInput("filter_sizes"),
                TensorFlowKernelOverride);
REGISTER_XLA_OP(Name("TpuExt>KernelConv3D"), TensorFlowKernelOverride);
REGISTER_XLA_OP(Name("TpuExt>KernelConv3DBackpropInputV2").CompileTimeConstantInput("input_sizes"),
                TensorFlowKernelOverride);
REGISTER_XLA_OP(
    Name("TpuExt>KernelConv3DBackpropFilterV2").CompileTimeConstantInput("filter_sizes"),
    TensorFlowKernelOverride);
REGISTER_XLA_OP(Name("TpuExt>KernelDepthwiseConv2dNative"), TensorFlowKernelOverride);
REGISTER_XLA_OP(
    Name("TpuExt>KernelDepthwiseConv2dNativeBackpropInput").CompileTimeConstantInput("input_sizes"),
    TensorFlowKernelOverride);
REGISTER_XLA_OP(Name("TpuExt>KernelDepthwiseConv2dNativeBackpropFilter")
                    .CompileTimeConstantInput("filter_sizes"),
                TensorFlowKernelOverride);
REGISTER_XLA_OP(Name("TpuExt>KernelMaxPool"), TensorFlowKernelOverride);
REGISTER_XLA_OP(Name("TpuExt>KernelMaxPoolGrad"), TensorFlowKernelOverride);
REGISTER_XLA_OP(Name("TpuExt>KernelAvgPool"), TensorFlowKernelOverride);
REGISTER_XLA_OP(Name("TpuExt>KernelAvgPoolGrad").CompileTimeConstantInput("orig_input_shape"),
                TensorFlowKernelOverride);

}  // namespace
}  // namespace tf_tpu_ext
