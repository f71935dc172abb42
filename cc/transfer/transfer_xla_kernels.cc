// XLA kernels of the ops that communicate with the host from inside a program: each is one custom
// call.
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cc/base/user_lines.h"
#include "cc/ops/op_names.h"
#include "cc/program/dynamic_dimensions.h"
#include "cc/program/host_call.h"
#include "cc/program/transfer_call.h"
#include "cc/transfer/effect_xla_kernel.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "xla/hlo/builder/sharding_builder.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::DataType;
using tensorflow::OpKernelConstruction;
using tensorflow::PartialTensorShape;
using tensorflow::TensorShape;
using tensorflow::XlaOpKernelContext;

// Gives everything built during its lifetime the Python line, for profiles and for readers of the
// module.
class ScopedSource {
 public:
  ScopedSource(xla::XlaBuilder* builder, const SourceLine& source)
      : builder_(*builder), before_(builder_.SwapOpMetadata({})) {
    xla::OpMetadata metadata = before_;
    if (source.known()) {
      metadata.set_source_file(source.file);
      metadata.set_source_line(source.line);
    }
    builder_.SetOpMetadata(std::move(metadata));
  }
  ~ScopedSource() { builder_.SetOpMetadata(std::move(before_)); }
  ScopedSource(const ScopedSource&) = delete;
  ScopedSource& operator=(const ScopedSource&) = delete;

 private:
  xla::XlaBuilder& builder_;
  xla::OpMetadata before_;
};

// An op that becomes one custom call, whose results come from the host.
class ExchangeXlaKernel : public EffectXlaKernel {
 public:
  using EffectXlaKernel::EffectXlaKernel;

  void Compile(XlaOpKernelContext* context) override {
    std::vector<xla::XlaOp> operands;
    std::vector<DynamicDimension> dynamic;
    OP_REQUIRES_OK(context, AddInputs(context, &operands, &dynamic));
    absl::StatusOr<std::vector<xla::Shape>> results = ResultShapes();
    OP_REQUIRES_OK(context, results.status());
    std::vector<xla::XlaOp> received;
    const ScopedSource scope(context->builder(), Source());
    OP_REQUIRES_OK(context, Call(context, Target(), Config(std::move(dynamic)),
                                 PartitionOf(*context->builder()), std::move(operands),
                                 *std::move(results), &received));
    for (size_t i = 0; i < received.size(); ++i) context->SetOutput(i, received[i]);
  }

 protected:
  virtual const char* Target() const = 0;
  virtual std::string Config(std::vector<DynamicDimension> dynamic) const = 0;
  // The Python line that the transfer comes from; unknown if it has no file.
  virtual SourceLine Source() const { return {}; }
  // What to do about results whose shapes are not static.
  virtual const char* AdviceOnShapes() const {
    return "Wrap what the host function returns in tf.ensure_shape.";
  }

  // Where the call happens in a replica with several cores: on the core that the program names, on
  // the first one if it names none, or on every core separately.
  virtual xla::OpSharding PartitionOf(const xla::XlaBuilder& builder) const {
    return OneCore(builder);
  }

  absl::Status GetResults(OpKernelConstruction* construction, const char* types) {
    TF_RETURN_IF_ERROR(construction->GetAttr(types, &types_));
    return construction->GetAttr("shapes", &shapes_);
  }

  absl::Status GetSingleResult(OpKernelConstruction* construction, const char* type) {
    types_.resize(1);
    shapes_.resize(1);
    TF_RETURN_IF_ERROR(construction->GetAttr(type, &types_[0]));
    return construction->GetAttr("shape", &shapes_[0]);
  }

  bool has_results() const { return !types_.empty(); }

 private:
  absl::StatusOr<std::vector<xla::Shape>> ResultShapes() const {
    std::vector<xla::Shape> results;
    for (size_t i = 0; i < types_.size(); ++i) {
      TensorShape shape;
      if (i >= shapes_.size() || !shapes_[i].AsTensorShape(&shape)) {
        return absl::InvalidArgumentError(
            absl::StrCat("Result ", i, " of op ", name(), " has shape ",
                         i < shapes_.size() ? shapes_[i].DebugString() : "<unknown>",
                         "; a compiled program needs its static shape. ", AdviceOnShapes()));
      }
      xla::PrimitiveType type;
      TF_RETURN_IF_ERROR(tensorflow::DataTypeToPrimitiveType(types_[i], &type));
      // Any other way to make a shape throws if its size in bytes can't be computed.
      TF_ASSIGN_OR_RETURN(xla::Shape result,
                          xla::ShapeUtil::MakeValidatedShape(type, shape.dim_sizes()));
      results.push_back(std::move(result));
    }
    return results;
  }

  // Inputs of dynamic size are passed padded, with the true sizes of their dynamic dimensions after
  // all inputs.
  static absl::Status AddInputs(XlaOpKernelContext* context, std::vector<xla::XlaOp>* operands,
                                std::vector<DynamicDimension>* dynamic) {
    std::vector<xla::XlaOp> sizes;
    for (int i = 0; i < context->num_inputs(); ++i) {
      xla::XlaOp operand = context->Input(i);
      TF_ASSIGN_OR_RETURN(const xla::Shape shape, context->builder()->GetShape(operand));
      for (int d = 0; d < static_cast<int>(shape.dimensions().size()); ++d) {
        if (!shape.is_dynamic_dimension(d)) continue;
        dynamic->push_back({i, d});
        sizes.push_back(xla::GetDimensionSize(context->Input(i), d));
        operand = xla::RemoveDynamicDimension(operand, d);
      }
      operands->push_back(operand);
    }
    operands->insert(operands->end(), sizes.begin(), sizes.end());
    return absl::OkStatus();
  }

  std::vector<DataType> types_;
  std::vector<PartialTensorShape> shapes_;
};

// A cluster that is folded into a function.
class HostCallOp : public ExchangeXlaKernel {
 public:
  explicit HostCallOp(OpKernelConstruction* construction) : ExchangeXlaKernel(construction) {
    call_.op = name();
    OP_REQUIRES_OK(construction, construction->GetAttr(kHostFunctionNumber, &call_.function));
    std::string source;
    OP_REQUIRES_OK(construction, construction->GetAttr("source", &source));
    source_ = ParseSourceLine(source);
    OP_REQUIRES_OK(construction, GetResults(construction, "Toutputs"));
  }

 private:
  const char* Target() const override { return kHostCallTarget; }
  std::string Config(std::vector<DynamicDimension> dynamic) const override {
    HostCall call = call_;
    call.dynamic = std::move(dynamic);
    return Encode(call);
  }

  SourceLine Source() const override { return source_; }

  HostCall call_;
  SourceLine source_;
};

class TransferOp : public ExchangeXlaKernel {
 public:
  explicit TransferOp(OpKernelConstruction* construction) : ExchangeXlaKernel(construction) {
    call_.op = name();
  }

 protected:
  const char* Target() const override { return kTransferTarget; }
  std::string Config(std::vector<DynamicDimension> dynamic) const override {
    TransferCall call = call_;
    call.dynamic = std::move(dynamic);
    // A call without results has no use for the channel that would deliver them.
    if (!has_results()) call.receive.clear();
    return Encode(call);
  }

  TransferCall call_;
};

// A cluster in the host graph.
class HostComputeOp : public TransferOp {
 public:
  explicit HostComputeOp(OpKernelConstruction* construction) : TransferOp(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("send_key", &call_.send));
    OP_REQUIRES_OK(construction, construction->GetAttr("recv_key", &call_.receive));
    OP_REQUIRES_OK(construction, construction->GetAttr("manual_sharding", &on_every_core_));
    OP_REQUIRES_OK(construction, construction->GetAttr("counted_as", &call_.counted_as));
    OP_REQUIRES_OK(construction, construction->GetAttr("counts_call", &call_.counts_call));
    OP_REQUIRES_OK(construction, GetResults(construction, "Toutputs"));
  }

 private:
  xla::OpSharding PartitionOf(const xla::XlaBuilder& builder) const override {
    return on_every_core_ ? xla::sharding_builder::Manual() : OneCore(builder);
  }

  // Under SPMD, whether each core of the replica calls the host with its own shard.
  bool on_every_core_ = false;
};

class SendToHostOp : public TransferOp {
 public:
  explicit SendToHostOp(OpKernelConstruction* construction) : TransferOp(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("key", &call_.send));
  }
};

class ReceiveFromHostOp : public TransferOp {
 public:
  explicit ReceiveFromHostOp(OpKernelConstruction* construction) : TransferOp(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("key", &call_.receive));
    OP_REQUIRES_OK(construction, GetSingleResult(construction, "Toutput"));
  }
};

class InfeedDequeueOp : public TransferOp {
 public:
  explicit InfeedDequeueOp(OpKernelConstruction* construction) : TransferOp(construction) {
    call_.receive = kInfeedName;
    OP_REQUIRES_OK(construction, type_string() == "InfeedDequeue"
                                     ? GetSingleResult(construction, "dtype")
                                     : GetResults(construction, "dtypes"));
  }

 private:
  OnTarget on_target() const override { return OnTarget::kInfeed; }
  const char* AdviceOnShapes() const override {
    return "Give the infeed queue or op static shapes.";
  }
};

class OutfeedEnqueueOp : public TransferOp {
 public:
  explicit OutfeedEnqueueOp(OpKernelConstruction* construction) : TransferOp(construction) {
    call_.send = kOutfeedName;
  }

 private:
  OnTarget on_target() const override { return OnTarget::kOutfeed; }
};

REGISTER_XLA_OP(Name(kHostCallOp), HostCallOp);
REGISTER_XLA_OP(Name(kHostComputeOp), HostComputeOp);
REGISTER_XLA_OP(Name("XlaSendToHost"), SendToHostOp);
REGISTER_XLA_OP(Name("XlaRecvFromHost"), ReceiveFromHostOp);
REGISTER_XLA_OP(Name("InfeedDequeue"), InfeedDequeueOp);
REGISTER_XLA_OP(Name("InfeedDequeueTuple"), InfeedDequeueOp);
REGISTER_XLA_OP(Name("OutfeedEnqueue"), OutfeedEnqueueOp);
REGISTER_XLA_OP(Name("OutfeedEnqueueTuple"), OutfeedEnqueueOp);

}  // namespace
}  // namespace tf_tpu_ext
