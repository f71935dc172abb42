#include "cc/transfer/effect_xla_kernel.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/program/lowering.h"
#include "tensorflow/compiler/tf2xla/side_effect_util.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "xla/hlo/builder/sharding_builder.h"
#include "xla/layout_util.h"
#include "xla/shape_util.h"
#include "xla/side_effect_util.h"
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

// Tells a TPU's runtime who takes part in a transfer on the host.
xla::FrontendAttributes HostTransfer(const std::string& key) {
  xla::FrontendAttributes attributes;
  auto& map = *attributes.mutable_map();
  map[xla::kXlaHostTransferHandlerNameAttr] = xla::kXlaHostTransferTfRendezvousHandlerName;
  map[xla::kXlaHostTransferRendezvousNameAttr] = key;
  return attributes;
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
  if (GetLowering(context->op_kernel_context()->resource_manager()).for_target) {
    return TransferOnTarget(context, sharding, std::move(operands), results, received);
  }
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
  // The SPMD partitioner needs to know where each leaf of an effect's result is.
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

absl::Status EffectXlaKernel::TransferOnTarget(XlaOpKernelContext* context,
                                               const xla::OpSharding& sharding,
                                               std::vector<xla::XlaOp> operands,
                                               const std::vector<xla::Shape>& results,
                                               std::vector<xla::XlaOp>* received) const {
  xla::XlaBuilder* const builder = context->builder();
  std::optional<xla::OpSharding> on_core;
  if (builder->sharding().has_value() || sharding.type() == xla::OpSharding::MANUAL) {
    on_core = sharding;
  }
  const xla::XlaScopedShardingAssignment scope(builder, on_core);
  TF_ASSIGN_OR_RETURN(xla::XlaOp token, InputToken(context));
  const auto unpack = [&](xla::XlaOp data_and_token) {
    token = xla::GetTupleElement(data_and_token, 1);
    return xla::GetTupleElement(data_and_token, 0);
  };
  if (on_target() == OnTarget::kInfeed) {
    std::vector<xla::Shape> shapes;
    for (const xla::Shape& result : results) shapes.push_back(WithRowMajorLayout(result));
    const xla::XlaOp data =
        unpack(xla::InfeedWithToken(token, xla::ShapeUtil::MakeTupleShape(shapes)));
    for (size_t i = 0; i < results.size(); ++i) {
      received->push_back(xla::GetTupleElement(data, i));
    }
    return context->compiler()->SetNodeToken(token_owner_, token);
  }
  if (on_target() == OnTarget::kOutfeed) {
    const xla::XlaOp data = xla::Tuple(builder, operands);
    TF_ASSIGN_OR_RETURN(xla::Shape shape, builder->GetShape(data));
    xla::LayoutUtil::SetToDefaultLayout(&shape);
    token = xla::OutfeedWithToken(data, token, shape, "");
    return context->compiler()->SetNodeToken(token_owner_, token);
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string key = absl::StrCat(name(), " send ", i);
    xla::ChannelHandle handle;
    TF_RETURN_IF_ERROR(context->compiler()->GetDeviceToHostChannelHandle(key, &handle));
    TF_ASSIGN_OR_RETURN(xla::Shape shape, builder->GetShape(operands[i]));
    const xla::XlaScopedFrontendAttributesAssignment attributes(builder, HostTransfer(key));
    token = xla::SendToHost(operands[i], token, WithRowMajorLayout(std::move(shape)), handle);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string key = absl::StrCat(name(), " receive ", i);
    xla::ChannelHandle handle;
    TF_RETURN_IF_ERROR(context->compiler()->GetHostToDeviceChannelHandle(key, &handle));
    const xla::XlaScopedFrontendAttributesAssignment attributes(builder, HostTransfer(key));
    received->push_back(unpack(xla::RecvFromHost(token, WithRowMajorLayout(results[i]), handle)));
  }
  return context->compiler()->SetNodeToken(token_owner_, token);
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
