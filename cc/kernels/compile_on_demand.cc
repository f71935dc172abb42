#include "cc/kernels/compile_on_demand.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/compiler/lower/lower_module.h"
#include "cc/compiler/lower/rewrite_functions.h"
#include "cc/compiler/overrides/checked_ops.h"
#include "cc/kernels/compile_and_launch.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/kernel_def.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/public/version.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::NodeDef;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

constexpr char kStockCompileOnDemand[] = "XlaCompileOnDemandOp";

// Checks what graph construction checks and eager execution does not: XLA's kernels rely on it.
absl::Status CheckShapes(OpKernelContext* context) {
  const tensorflow::NodeDef& node = context->op_kernel().def();
  const tensorflow::OpRegistrationData* op = nullptr;
  TF_RETURN_IF_ERROR(tensorflow::OpRegistry::Global()->LookUp(node.op(), &op));
  if (op->shape_inference_fn == nullptr) return absl::OkStatus();
  std::vector<tensorflow::PartialTensorShape> shapes;
  std::vector<const tensorflow::Tensor*> values;
  for (int input = 0; input < context->num_inputs(); ++input) {
    const bool is_resource = context->input_dtype(input) == tensorflow::DT_RESOURCE;
    shapes.emplace_back(
        is_resource ? tensorflow::PartialTensorShape({})
                    : tensorflow::PartialTensorShape(context->input(input).shape().dim_sizes()));
    values.push_back(is_resource ? nullptr : &context->input(input));
  }
  tensorflow::shape_inference::InferenceContext inference(
      TF_GRAPH_DEF_VERSION, node, op->op_def, shapes, values, /*input_tensors_as_shapes=*/{},
      /*input_handle_shapes_and_types=*/
      std::vector<std::unique_ptr<
          std::vector<std::pair<tensorflow::PartialTensorShape, tensorflow::DataType>>>>(
          shapes.size()));
  TF_RETURN_IF_ERROR(inference.construction_status());
  return inference.Run(op->shape_inference_fn);
}

bool HasChannelsFirst(const NodeDef& node) {
  std::string data_format;
  return tensorflow::TryGetNodeAttr(node, "data_format", &data_format) &&
         (absl::StartsWith(data_format, "NC") || data_format == "CHANNELS_FIRST");
}

bool IsDilated(const NodeDef& node) {
  std::vector<int32_t> dilations;
  return tensorflow::TryGetNodeAttr(node, "dilations", &dilations) &&
         std::any_of(dilations.begin(), dilations.end(), [](int32_t rate) { return rate > 1; });
}

// Whether the CPU's kernel accepts the op but computes something different from a TPU.
bool DiffersOnCpu(const NodeDef& node) {
  // The CPU computes depthwise convolutions as if they were not dilated.
  if (absl::StartsWith(node.op(), "DepthwiseConv2dNative") && IsDilated(node)) return true;
  // Singular vectors that were not requested are empty on a TPU, but scalars on the CPU.
  bool compute_uv = true;
  if (node.op() == "Svd" && tensorflow::TryGetNodeAttr(node, "compute_uv", &compute_uv)) {
    return !compute_uv;
  }
  // For complex numbers, the CPU's gradients conjugate the result, a TPU's do not; and a division
  // by zero is NaN on the CPU, but infinity on a TPU.
  static const auto* const of_complex_numbers = new absl::flat_hash_set<std::string>(
      {"Div", "Inv", "InvGrad", "RealDiv", "Reciprocal", "ReciprocalGrad", "RsqrtGrad",
       "SigmoidGrad", "SqrtGrad", "TanhGrad", "Xdivy"});
  // The CPU accumulates short floats in their own type, so that sums overflow or stop growing; a
  // TPU accumulates them in float.
  static const auto* const of_short_floats = new absl::flat_hash_set<std::string>(
      {"BiasAddGrad", "Cumprod", "Cumsum", "L2Loss", "Mean", "Prod", "Sum"});
  tensorflow::DataType type;
  if (!tensorflow::TryGetNodeAttr(node, "T", &type)) return false;
  if (tensorflow::DataTypeIsComplex(type)) return of_complex_numbers->contains(node.op());
  return (type == tensorflow::DT_HALF || type == tensorflow::DT_BFLOAT16) &&
         of_short_floats->contains(node.op());
}

// Runs one op.
class CompileOnDemandOp : public CompileAndLaunchOp {
 public:
  CompileOnDemandOp(OpKernelConstruction* construction, const std::vector<int>& constants)
      : CompileAndLaunchOp(construction, construction->def().op(), constants,
                           /*compile_options=*/"") {}

 private:
  absl::Status Lower(OpKernelContext* context, tensorflow::XlaCompiler* compiler,
                     const tensorflow::XlaCompiler::CompileOptions& options,
                     absl::Span<const tensorflow::XlaArgument> arguments,
                     tensorflow::XlaCompilationResult* result) override {
    TF_RETURN_IF_ERROR(CheckShapes(context));
    tensorflow::XlaCompiler::SingleOpCompileArgument op(*context);
    ChooseTpuPlatform(&op.node_def);
    UseCheckedOp(&op.node_def);
    return compiler->CompileSingleOp(options, op, arguments, result);
  }
};

}  // namespace

bool MustCompileOnDemand(const NodeDef& node) {
  if (HasChannelsFirst(node) || DiffersOnCpu(node)) return true;
  std::string kernel_class;
  const absl::Status found =
      tensorflow::FindKernelDef(tensorflow::DeviceType(tensorflow::DEVICE_CPU), node,
                                /*def=*/nullptr, &kernel_class);
  return !found.ok() || kernel_class == kStockCompileOnDemand;
}

bool CanCompileOnDemand(const NodeDef& node) {
  return tensorflow::FindKernelDef(tensorflow::DeviceType(kCompilationDevice), node,
                                   /*def=*/nullptr, /*kernel_class_name=*/nullptr)
      .ok();
}

tensorflow::OpKernel* MakeCompileOnDemandKernel(OpKernelConstruction* construction) {
  const tensorflow::OpDef* op = nullptr;
  std::vector<int> constants;
  absl::Status status =
      tensorflow::OpRegistry::Global()->LookUpOpDef(construction->def().op(), &op);
  if (status.ok()) {
    status =
        tensorflow::XlaOpRegistry::CompileTimeConstantInputs(construction->def(), *op, &constants);
  }
  if (!status.ok()) {
    construction->SetStatus(status);
    return nullptr;
  }
  return new CompileOnDemandOp(construction, constants);
}

}  // namespace tf_tpu_ext
