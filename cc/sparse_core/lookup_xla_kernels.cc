// XLA kernels of lookups in tables sharded across SparseCores. All cores exchange the ids of their
// samples. Each adds up the contributions of its rows, and the sum over all cores goes to the
// samples' cores.
#include <utility>
#include <vector>

#include "cc/program/sparse_core_call.h"
#include "cc/sparse_core/sparse_core_xla_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/op_requires.h"
#include "xla/hlo/builder/lib/arithmetic.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::XlaOpKernelContext;
using xla::XlaOp;

class LookupOp : public SparseCoreXlaKernel {
 public:
  explicit LookupOp(OpKernelConstruction* construction) : SparseCoreXlaKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("input_size", &samples_));
    int buckets = 0;
    float lower = 0, upper = 0;
    OP_REQUIRES_OK(construction,
                   construction->GetAttr("quantization_config_num_buckets", &buckets));
    OP_REQUIRES_OK(construction, construction->GetAttr("quantization_config_low", &lower));
    OP_REQUIRES_OK(construction, construction->GetAttr("quantization_config_high", &upper));
    if (buckets <= 0) return;
    quantization_.set_enabled(true);
    quantization_.set_num_buckets(buckets);
    quantization_.mutable_clipping_limits()->mutable_lower()->set_value(lower);
    quantization_.mutable_clipping_limits()->mutable_upper()->set_value(upper);
  }

  void Compile(XlaOpKernelContext* context) override {
    OP_REQUIRES_VALUE(const XlaOp activations, context, Lower(context));
    context->SetOutput(0, activations);
  }

 private:
  absl::StatusOr<XlaOp> Lower(XlaOpKernelContext* context) const {
    TF_ASSIGN_OR_RETURN(const xla::Shape table, context->InputXlaShape("embedding_table"));
    TF_ASSIGN_OR_RETURN(const Ids ids, ReadIds(context, samples_, table));
    const SparseCoreShape& shape = ids.shape;
    const xla::Shape result =
        xla::ShapeUtil::MakeShape(xla::F32, {samples_ * shape.chips, shape.width});
    TF_ASSIGN_OR_RETURN(const XlaOp call,
                        SparseCoreCall(context->builder(), kSparseLookupTarget,
                                       Encode(SparseLookupCall{shape, quantization_}),
                                       {ids.packed, ids.chip, context->Input("embedding_table")},
                                       {RowMajor(result)}, {}));
    const XlaOp parts = xla::GetTupleElement(call, 0);
    if (shape.chips == 1) return parts;
    return xla::ReduceScatter(parts, xla::CreateScalarAddComputation(xla::F32, context->builder()),
                              0, shape.chips, AllChips(shape));
  }

  int64_t samples_ = 0;
  tensorflow::tpu::SimulatedQuantization quantization_;
};

REGISTER_XLA_OP(Name("XlaSparseDenseMatmulWithCsrInput"), LookupOp);
REGISTER_XLA_OP(Name("XlaSparseDenseMatmulWithStaticBufferSize"), LookupOp);

}  // namespace
}  // namespace tf_tpu_ext
