// XLA kernels of a program's embedding ops. Before them, the bridge has inserted an op that
// receives deduplication data, which says which activations and gradients belong together. Here
// batches are matched by their order, so that data is an empty value.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/embedding/layout.h"
#include "cc/program/embedding_call.h"
#include "cc/transfer/effect_xla_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/op_requires.h"
#include "xla/hlo/builder/lib/constants.h"
#include "xla/hlo/builder/sharding_builder.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::TensorShape;
using tensorflow::XlaOpKernel;
using tensorflow::XlaOpKernelContext;

class DeduplicationDataOp : public XlaOpKernel {
 public:
  using XlaOpKernel::XlaOpKernel;
  void Compile(XlaOpKernelContext* context) override {
    context->SetOutput(0, xla::ConstantR0<int32_t>(context->builder(), 0));
  }
};

class EmbeddingXlaKernel : public EffectXlaKernel {
 public:
  explicit EmbeddingXlaKernel(OpKernelConstruction* construction) : EffectXlaKernel(construction) {
    std::string serialized;
    OP_REQUIRES_OK(construction, construction->GetAttr("config", &serialized));
    tensorflow::tpu::TPUEmbeddingConfiguration config;
    OP_REQUIRES(construction, config.ParseFromString(serialized),
                absl::InvalidArgumentError(absl::StrCat("The config attribute of ", name(),
                                                        " is no TPUEmbeddingConfiguration.")));
    OP_REQUIRES_VALUE(layout_, construction, EmbeddingLayout::Create(config));
  }

 protected:
  absl::Status CheckCount(int count) const {
    const int expected = static_cast<int>(layout_.outputs.size());
    if (count == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("Op ", name(), " has ", count,
                                                   " tensors of embeddings; its configuration has ",
                                                   expected, "."));
  }

  // Whether each core of a replica has a part of every tensor, split along the first dimension.
  bool is_split() const { return layout_.cores_per_replica > 1; }

  // The part of an output that one core has.
  xla::Shape ShapeOnCore(size_t output) const {
    const EmbeddingLayout::Output& described = layout_.outputs[output];
    std::vector<int64_t> sizes(described.shape.begin(), described.shape.end());
    sizes.push_back(layout_.tables[described.table].dim);
    return xla::ShapeUtil::MakeShape(xla::F32, sizes);
  }

  xla::Shape ShapeInReplica(size_t output) const {
    xla::Shape shape = ShapeOnCore(output);
    shape.set_dimensions(0, shape.dimensions(0) * layout_.cores_per_replica);
    return shape;
  }

  xla::OpSharding Split(const xla::Shape& shape) const {
    std::vector<int64_t> tiles(shape.dimensions().size(), 1);
    tiles[0] = layout_.cores_per_replica;
    xla::OpSharding sharding;
    sharding.set_type(xla::OpSharding::OTHER);
    for (int64_t tile : tiles) sharding.add_tile_assignment_dimensions(tile);
    for (int core = 0; core < layout_.cores_per_replica; ++core) {
      sharding.add_tile_assignment_devices(core);
    }
    return sharding;
  }

  xla::OpSharding Everywhere(const xla::XlaBuilder& builder) const {
    return is_split() ? xla::sharding_builder::Manual() : OneCore(builder);
  }

  // A custom call by which the SPMD partitioner switches from the replica's view to that of the
  // cores, or back.
  static xla::XlaOp Reshard(xla::XlaBuilder* builder, const char* target, xla::XlaOp value,
                            const xla::OpSharding& from, const xla::OpSharding& to,
                            const xla::Shape& before, const xla::Shape& after) {
    xla::XlaOp annotated;
    {
      xla::XlaScopedShardingAssignment scope(builder, from);
      annotated = xla::CustomCall(builder, "Sharding", {value}, before);
    }
    xla::XlaScopedShardingAssignment scope(builder, to);
    return xla::CustomCall(builder, target, {annotated}, after);
  }

  EmbeddingLayout layout_;
};

class ReceiveActivationsOp : public EmbeddingXlaKernel {
 public:
  using EmbeddingXlaKernel::EmbeddingXlaKernel;

  void Compile(XlaOpKernelContext* context) override {
    OP_REQUIRES_OK(context, CheckCount(context->num_outputs()));
    xla::XlaBuilder* builder = context->builder();
    std::vector<xla::Shape> shapes;
    for (size_t i = 0; i < layout_.outputs.size(); ++i) shapes.push_back(ShapeOnCore(i));
    std::vector<xla::XlaOp> received;
    OP_REQUIRES_OK(context,
                   Call(context, kReceiveActivationsTarget, Encode(ReceiveActivationsCall{name()}),
                        Everywhere(*builder), {}, shapes, &received));
    for (size_t i = 0; i < received.size(); ++i) {
      if (is_split()) {
        const xla::Shape whole = ShapeInReplica(i);
        received[i] = Reshard(builder, "SPMDShardToFullShape", received[i],
                              xla::sharding_builder::Manual(), Split(whole), shapes[i], whole);
      }
      context->SetOutput(static_cast<int>(i), received[i]);
    }
  }
};

class SendGradientsOp : public EmbeddingXlaKernel {
 public:
  using EmbeddingXlaKernel::EmbeddingXlaKernel;

  void Compile(XlaOpKernelContext* context) override {
    xla::XlaBuilder* builder = context->builder();
    std::vector<xla::XlaOp> operands, rates;
    std::vector<TensorShape> shapes, rate_shapes;
    OP_REQUIRES_OK(context, context->InputList("gradients", &operands, &shapes));
    OP_REQUIRES_OK(context, context->InputList("learning_rates", &rates, &rate_shapes));
    OP_REQUIRES_OK(context, CheckCount(static_cast<int>(operands.size())));
    for (size_t i = 0; i < operands.size(); ++i) {
      const xla::Shape whole = ShapeInReplica(i);
      OP_REQUIRES(context, shapes[i].num_elements() == xla::ShapeUtil::ElementsIn(whole),
                  absl::InvalidArgumentError(
                      absl::StrCat("The gradient of ", layout_.outputs[i].name, " has the shape ",
                                   shapes[i].DebugString(), "; its activations have ",
                                   xla::ShapeUtil::HumanString(whole), ".")));
      operands[i] = xla::Reshape(operands[i], whole.dimensions());
      if (is_split()) {
        operands[i] = Reshard(builder, "SPMDFullToShardShape", operands[i], Split(whole),
                              xla::sharding_builder::Manual(), whole, ShapeOnCore(i));
      }
    }
    for (size_t i = 0; i < rates.size(); ++i) {
      OP_REQUIRES(context, rate_shapes[i].num_elements() == 1,
                  absl::InvalidArgumentError(
                      absl::StrCat("Learning rate ", i, " of ", name(), " has the shape ",
                                   rate_shapes[i].DebugString(), "; it must be a scalar.")));
      if (is_split()) {
        OP_REQUIRES_VALUE(const xla::Shape shape, context, builder->GetShape(rates[i]));
        rates[i] =
            Reshard(builder, "SPMDFullToShardShape", rates[i], xla::sharding_builder::Replicate(),
                    xla::sharding_builder::Manual(), shape, shape);
      }
    }
    const SendGradientsCall call{name(), static_cast<int>(operands.size())};
    operands.insert(operands.end(), rates.begin(), rates.end());
    std::vector<xla::XlaOp> none;
    OP_REQUIRES_OK(context, Call(context, kSendGradientsTarget, Encode(call), Everywhere(*builder),
                                 std::move(operands), {}, &none));
  }
};

// Passes on a table's activations. The op exists for its gradient function.
class TableActivationsOp : public XlaOpKernel {
 public:
  using XlaOpKernel::XlaOpKernel;
  void Compile(XlaOpKernelContext* context) override { context->SetOutput(0, context->Input(1)); }
};

REGISTER_XLA_OP(Name("XlaRecvTPUEmbeddingDeduplicationData").AllowVariantTypes(),
                DeduplicationDataOp);
REGISTER_XLA_OP(Name("XlaRecvTPUEmbeddingActivations").AllowVariantTypes(), ReceiveActivationsOp);
REGISTER_XLA_OP(Name("XlaSendTPUEmbeddingGradients").AllowVariantTypes(), SendGradientsOp);
REGISTER_XLA_OP(Name("TPUEmbeddingActivations"), TableActivationsOp);

}  // namespace
}  // namespace tf_tpu_ext
