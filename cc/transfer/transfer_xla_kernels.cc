// XLA kernels of the ops that talk to the host from inside a program: one custom call each.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/ops/op_names.h"
#include "cc/transfer/channels.h"
#include "cc/transfer/effect_xla_kernel.h"
#include "cc/transfer/transfer_call.h"
#include "tensorflow/compiler/tf2xla/shape_util.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "xla/hlo/builder/sharding_builder.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::DataType;
using tensorflow::OpKernelConstruction;
using tensorflow::PartialTensorShape;
using tensorflow::TensorShape;
using tensorflow::XlaOpKernelContext;

class TransferOp : public EffectXlaKernel {
 public:
  explicit TransferOp(OpKernelConstruction* construction) : EffectXlaKernel(construction) {
    const std::string op = type_string();
    if (op == kHostCallOp) {
      OP_REQUIRES_OK(construction, construction->GetAttr(kHostFunctionNumber, &function_));
      OP_REQUIRES_OK(construction, construction->GetAttr("Toutputs", &types_));
      OP_REQUIRES_OK(construction, construction->GetAttr("shapes", &shapes_));
    } else if (op == kHostComputeOp) {
      OP_REQUIRES_OK(construction, construction->GetAttr("send_key", &send_));
      OP_REQUIRES_OK(construction, construction->GetAttr("recv_key", &receive_));
      OP_REQUIRES_OK(construction, construction->GetAttr("Toutputs", &types_));
      OP_REQUIRES_OK(construction, construction->GetAttr("shapes", &shapes_));
      OP_REQUIRES_OK(construction, construction->GetAttr("manual_sharding", &every_partition_));
      OP_REQUIRES_OK(construction, construction->GetAttr("counted_as", &counted_as_));
      OP_REQUIRES_OK(construction, construction->GetAttr("counts_call", &counts_call_));
    } else if (op == "XlaSendToHost") {
      OP_REQUIRES_OK(construction, construction->GetAttr("key", &send_));
    } else if (op == "XlaRecvFromHost") {
      OP_REQUIRES_OK(construction, construction->GetAttr("key", &receive_));
      GetSingle(construction, "Toutput");
    } else if (op == "InfeedDequeue") {
      receive_ = kInfeedName;
      GetSingle(construction, "dtype");
    } else if (op == "InfeedDequeueTuple") {
      receive_ = kInfeedName;
      OP_REQUIRES_OK(construction, construction->GetAttr("dtypes", &types_));
      OP_REQUIRES_OK(construction, construction->GetAttr("shapes", &shapes_));
    } else {
      send_ = kOutfeedName;
    }
    // An effect without results has no use for the answer's channel.
    if (types_.empty()) receive_.clear();
  }

  void Compile(XlaOpKernelContext* context) override {
    std::vector<xla::XlaOp> operands;
    std::vector<std::string> dynamic;
    OP_REQUIRES_OK(context, AddInputs(context, &operands, &dynamic));
    std::vector<xla::Shape> results;
    for (size_t i = 0; i < types_.size(); ++i) {
      TensorShape shape;
      OP_REQUIRES(context, i < shapes_.size() && shapes_[i].AsTensorShape(&shape),
                  absl::InvalidArgumentError(absl::StrCat(
                      "Result ", i, " of op ", name(), " has shape ",
                      i < shapes_.size() ? shapes_[i].DebugString() : "<unknown>",
                      "; a compiled program needs its static shape. ",
                      receive_ == kInfeedName ? "Give the infeed queue or op static shapes."
                                              : "Wrap what the host function returns in "
                                                "tf.ensure_shape.")));
      xla::Shape result;
      OP_REQUIRES_OK(context, tensorflow::TensorShapeToXLAShape(types_[i], shape, &result));
      results.push_back(std::move(result));
    }

    const std::string config = absl::StrCat(
        "{", kTransferSend, " = ", Quoted(send_), ", ", kTransferReceive, " = ", Quoted(receive_),
        ", ", kTransferDynamic, " = ", Quoted(absl::StrJoin(dynamic, ",")), ", ", kTransferOp,
        " = ", Quoted(name()), ", ",
        function_ < 0 ? absl::StrCat(kTransferCountedAs, " = ", Quoted(counted_as_), ", ",
                                     kTransferCountsCall, " = ", counts_call_ ? 1 : 0, " : i64")
                      : absl::StrCat(kTransferFunction, " = ", function_, " : i64"),
        "}");
    std::vector<xla::XlaOp> received;
    OP_REQUIRES_OK(context, Call(context, kTransferTarget, config, PartitionOf(*context->builder()),
                                 std::move(operands), std::move(results), &received));
    for (size_t i = 0; i < types_.size(); ++i) context->SetOutput(i, received[i]);
  }

 private:
  void GetSingle(OpKernelConstruction* construction, const char* type_attribute) {
    types_.resize(1);
    shapes_.resize(1);
    OP_REQUIRES_OK(construction, construction->GetAttr(type_attribute, &types_[0]));
    OP_REQUIRES_OK(construction, construction->GetAttr("shape", &shapes_[0]));
  }

  // Where the transfer happens in a replica of several cores: on the core that the program names,
  // on the first one if it names none, or on every core for itself.
  xla::OpSharding PartitionOf(const xla::XlaBuilder& builder) const {
    if (every_partition_) return xla::sharding_builder::Manual();
    return OneCore(builder);
  }

  // Inputs of dynamic size go in padded, with the true sizes of their dynamic dimensions behind all
  // inputs; `dynamic` says which, as "input:dimension".
  static absl::Status AddInputs(XlaOpKernelContext* context, std::vector<xla::XlaOp>* operands,
                                std::vector<std::string>* dynamic) {
    std::vector<xla::XlaOp> sizes;
    for (int i = 0; i < context->num_inputs(); ++i) {
      xla::XlaOp operand = context->Input(i);
      auto shape = context->builder()->GetShape(operand);
      if (!shape.ok()) return shape.status();
      for (int d = 0; d < static_cast<int>(shape->dimensions().size()); ++d) {
        if (!shape->is_dynamic_dimension(d)) continue;
        dynamic->push_back(absl::StrCat(i, ":", d));
        sizes.push_back(xla::GetDimensionSize(context->Input(i), d));
        operand = xla::RemoveDynamicDimension(operand, d);
      }
      operands->push_back(operand);
    }
    operands->insert(operands->end(), sizes.begin(), sizes.end());
    return absl::OkStatus();
  }

  std::string send_;
  std::string receive_;
  int64_t function_ = -1;
  std::vector<DataType> types_;
  std::vector<PartialTensorShape> shapes_;
  // Under SPMD, whether each core of the replica calls the host with its own shard.
  bool every_partition_ = false;
  // Under which name its cluster is counted, if that is not the op's.
  std::string counted_as_;
  bool counts_call_ = true;
};

REGISTER_XLA_OP(Name(kHostCallOp), TransferOp);
REGISTER_XLA_OP(Name(kHostComputeOp), TransferOp);
REGISTER_XLA_OP(Name("XlaSendToHost"), TransferOp);
REGISTER_XLA_OP(Name("XlaRecvFromHost"), TransferOp);
REGISTER_XLA_OP(Name("InfeedDequeue"), TransferOp);
REGISTER_XLA_OP(Name("InfeedDequeueTuple"), TransferOp);
REGISTER_XLA_OP(Name("OutfeedEnqueue"), TransferOp);
REGISTER_XLA_OP(Name("OutfeedEnqueueTuple"), TransferOp);

}  // namespace
}  // namespace tf_tpu_ext
