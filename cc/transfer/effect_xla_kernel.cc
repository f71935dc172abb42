#include "cc/transfer/effect_xla_kernel.h"

#include <utility>

#include "tensorflow/compiler/tf2xla/side_effect_util.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "xla/hlo/builder/sharding_builder.h"
#include "xla/layout_util.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::XlaOpKernel;
using tensorflow::XlaOpKernelContext;

xla::Shape WithRowMajorLayout(xla::Shape shape) {
  if (shape.IsArray()) xla::LayoutUtil::SetToDefaultLayout(&shape);
  return shape;
}

}  // namespace

EffectXlaKernel::EffectXlaKernel(OpKernelConstruction* construction) : XlaOpKernel(construction) {
  if (!construction->GetAttr(tensorflow::kXlaTokenInputNodesAttrName, &token_inputs_).ok()) {
    token_inputs_.clear();
  }
  const char* owner = tensorflow::kXlaOriginalOutsideCompilationNodeName;
  if (!construction->GetAttr(owner, &token_owner_).ok()) token_owner_ = name();
}

absl::Status EffectXlaKernel::Call(XlaOpKernelContext* context, const std::string& target,
                                   const std::string& config, const xla::OpSharding& sharding,
                                   std::vector<xla::XlaOp> operands,
                                   std::vector<xla::Shape> results,
                                   std::vector<xla::XlaOp>* received) const {
  xla::XlaBuilder* builder = context->builder();
  xla::XlaOp token;
  {
    xla::XlaScopedShardingAssignment scope(builder, sharding);
    TF_ASSIGN_OR_RETURN(token, InputToken(context));
  }
  operands.push_back(token);
  std::vector<xla::Shape> operand_shapes;
  for (xla::XlaOp operand : operands) {
    TF_ASSIGN_OR_RETURN(xla::Shape shape, builder->GetShape(operand));
    operand_shapes.push_back(WithRowMajorLayout(std::move(shape)));
  }
  for (xla::Shape& result : results) result = WithRowMajorLayout(std::move(result));
  results.push_back(xla::ShapeUtil::MakeTokenShape());
  // The SPMD partitioner wants to know of every leaf of an effect's result where it happens.
  xla::OpSharding leaves;
  leaves.set_type(xla::OpSharding::TUPLE);
  for (size_t i = 0; i < results.size(); ++i) *leaves.add_tuple_shardings() = sharding;
  xla::XlaOp call;
  {
    xla::XlaScopedShardingAssignment scope(builder, leaves);
    call = xla::CustomCallWithLayout(
        builder, target, operands, xla::ShapeUtil::MakeTupleShape(results), operand_shapes, config,
        /*has_side_effect=*/true, /*output_operand_aliasing=*/{},
        /*literal=*/nullptr, xla::CustomCallSchedule::SCHEDULE_NONE,
        xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
  }
  for (size_t i = 0; i + 1 < results.size(); ++i) {
    received->push_back(xla::GetTupleElement(call, i));
  }
  return context->compiler()->SetNodeToken(token_owner_,
                                           xla::GetTupleElement(call, results.size() - 1));
}

xla::OpSharding EffectXlaKernel::OneCore(const xla::XlaBuilder& builder) {
  const auto& current = builder.sharding();
  const bool placed = current.has_value() && current->type() == xla::OpSharding::MAXIMAL;
  return xla::sharding_builder::AssignDevice(placed ? current->tile_assignment_devices(0) : 0);
}

absl::StatusOr<xla::XlaOp> EffectXlaKernel::InputToken(XlaOpKernelContext* context) const {
  std::vector<xla::XlaOp> tokens;
  for (const std::string& owner : token_inputs_) {
    TF_ASSIGN_OR_RETURN(const xla::XlaOp token, context->compiler()->GetNodeToken(owner));
    tokens.push_back(token);
  }
  if (tokens.empty()) return xla::CreateToken(context->builder());
  return tokens.size() == 1 ? tokens[0] : xla::AfterAll(context->builder(), tokens);
}

}  // namespace tf_tpu_ext
