// XLA kernels of CrossReplicaSum, AllToAll and CollectivePermute. TensorFlow's CPU wheel registers
// these ops, but no kernels that lower them.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cc/ops/all_to_all_shapes.h"
#include "cc/ops/replica_groups.h"
#include "cc/program/lowering.h"
#include "llvm/ADT/StringRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/op_requires.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"
#include "xla/hlo/builder/lib/constants.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape.h"
#include "xla/shape_util.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::XlaOpKernel;
using ::tensorflow::XlaOpKernelContext;

// The numbers of the ops' inputs and outputs.
constexpr int kInput = 0;
constexpr int kReplicas = 1;  // group_assignment or source_target_pairs
constexpr int kOutput = 0;

// A tensor whose dimensions were made static, and the sizes of those that were dynamic.
struct StaticOperand {
  xla::XlaOp value;
  std::vector<std::pair<int64_t, xla::XlaOp>> dynamic_sizes;  // (dimension, size)
};

// Replicas may have different sizes of a dynamic dimension. They exchange arrays of the full bound,
// with zeros where a replica has no elements, so that no padding reaches another replica's result.
absl::StatusOr<StaticOperand> ZeroPadded(xla::XlaOp input) {
  xla::XlaBuilder* builder = input.builder();
  TF_ASSIGN_OR_RETURN(const xla::Shape shape, builder->GetShape(input));
  StaticOperand operand{input, {}};
  for (size_t i = 0; i < shape.dimensions().size(); ++i) {
    if (!shape.is_dynamic_dimension(i)) continue;
    const xla::XlaOp size = xla::GetDimensionSize(input, i);
    operand.dynamic_sizes.emplace_back(i, size);
    operand.value = xla::RemoveDynamicDimension(operand.value, i);
  }
  for (const auto& [dimension, size] : operand.dynamic_sizes) {
    const xla::XlaOp index =
        xla::Iota(builder, xla::ShapeUtil::MakeShape(xla::S32, shape.dimensions()), dimension);
    operand.value = xla::Select(xla::Lt(index, size), operand.value, xla::ZerosLike(operand.value));
  }
  return operand;
}

// Gives `result` the dynamic sizes that this replica's operand had.
xla::XlaOp RestoreSizes(xla::XlaOp result, const StaticOperand& operand) {
  for (const auto& [dimension, size] : operand.dynamic_sizes) {
    result = xla::SetDimensionSize(result, size, dimension);
  }
  return result;
}

// A collective op: Compile() reads which replicas take part, and Lower() emits the XLA collective.
template <class Replicas>
class CollectiveOp : public XlaOpKernel {
 public:
  using Parser = absl::StatusOr<Replicas> (*)(const CollectiveContext&, absl::Span<const int64_t>,
                                              absl::Span<const int64_t>);

  CollectiveOp(OpKernelConstruction* construction, Parser parser)
      : XlaOpKernel(construction), parser_(parser) {}

  void Compile(XlaOpKernelContext* context) override {
    OP_REQUIRES_OK(context, CheckShapes(context));
    std::vector<int64_t> values;
    OP_REQUIRES_OK(context, context->ConstantInputReshapedToIntVector(kReplicas, &values));
    const int64_t num_replicas =
        GetLowering(context->op_kernel_context()->resource_manager()).replicas;
    OP_REQUIRES_VALUE(const xla::Shape shape, context, context->InputXlaShape(kReplicas));
    OP_REQUIRES_VALUE(const Replicas replicas, context,
                      parser_({type_string(), num_replicas}, shape.dimensions(), values));
    OP_REQUIRES_VALUE(const StaticOperand operand, context, ZeroPadded(context->Input(kInput)));
    context->SetOutput(kOutput,
                       RestoreSizes(Lower(operand.value, replicas, num_replicas), operand));
  }

 protected:
  // Checks whatever else the op requires of its shapes.
  virtual absl::Status CheckShapes(XlaOpKernelContext* context) { return absl::OkStatus(); }
  virtual xla::XlaOp Lower(xla::XlaOp input, const Replicas& replicas, int64_t num_replicas) = 0;

 private:
  const Parser parser_;
};

std::vector<xla::ReplicaGroup> ToXla(const ReplicaGroups& groups) {
  std::vector<xla::ReplicaGroup> result;
  result.reserve(groups.size());
  for (const std::vector<int64_t>& group : groups) {
    result.emplace_back().mutable_replica_ids()->Add(group.begin(), group.end());
  }
  return result;
}

// A group of one keeps its input. This also holds where replicas are not connected, such as under
// jit_compile on a plain CPU.
bool GroupsOfOne(const ReplicaGroups& groups) { return groups.front().size() == 1; }

class CrossReplicaSumOp : public CollectiveOp<ReplicaGroups> {
 public:
  explicit CrossReplicaSumOp(OpKernelConstruction* construction)
      : CollectiveOp(construction, ParseGroupAssignment) {}

 protected:
  // 16-bit floats are summed in float32 and rounded once. XLA:CPU's all-reduce does not support
  // bfloat16 (an XLA pass may widen it, but need not), and rounds a half-precision sum after every
  // addition.
  xla::XlaOp Lower(xla::XlaOp input, const ReplicaGroups& groups, int64_t) override {
    if (GroupsOfOne(groups)) return input;
    const std::vector<xla::ReplicaGroup> xla_groups = ToXla(groups);
    const tensorflow::DataType type = input_type(kInput);
    if (type != tensorflow::DT_BFLOAT16 && type != tensorflow::DT_HALF) {
      return xla::CrossReplicaSum(input, xla_groups);
    }
    const xla::PrimitiveType narrow = type == tensorflow::DT_HALF ? xla::F16 : xla::BF16;
    const xla::XlaOp wide = xla::ConvertElementType(input, xla::F32);
    return xla::ConvertElementType(xla::CrossReplicaSum(wide, xla_groups), narrow);
  }
};

class AllToAllOp : public CollectiveOp<ReplicaGroups> {
 public:
  explicit AllToAllOp(OpKernelConstruction* construction)
      : CollectiveOp(construction, ParseGroupAssignment) {
    OP_REQUIRES_OK(construction, construction->GetAttr("concat_dimension", &concat_dimension_));
    OP_REQUIRES_OK(construction, construction->GetAttr("split_dimension", &split_dimension_));
    OP_REQUIRES_OK(construction, construction->GetAttr("split_count", &split_count_));
  }

 protected:
  absl::Status CheckShapes(XlaOpKernelContext* context) override {
    std::vector<tensorflow::PartialTensorShape> shapes;
    for (int input : {kInput, kReplicas}) {
      TF_ASSIGN_OR_RETURN(const xla::Shape shape, context->InputXlaShape(input));
      shapes.emplace_back(
          std::vector<int64_t>(shape.dimensions().begin(), shape.dimensions().end()));
    }
    TF_RETURN_IF_ERROR(CheckAllToAllShapes(def(), shapes));
    TF_ASSIGN_OR_RETURN(const xla::Shape shape, context->InputXlaShape(kInput));
    for (int64_t dimension : {split_dimension_, concat_dimension_}) {
      if (!shape.is_dynamic_dimension(dimension)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "AllToAll: dimension ", dimension, " of the input, of at most ",
          shape.dimensions(dimension),
          " elements, may differ in size between replicas; expected "
          "a fixed size where the input is split or concatenated. Pad it to one size before the "
          "op, or split and concatenate other dimensions."));
    }
    return absl::OkStatus();
  }

  xla::XlaOp Lower(xla::XlaOp input, const ReplicaGroups& groups, int64_t) override {
    if (GroupsOfOne(groups)) return input;
    return xla::AllToAll(input, split_dimension_, concat_dimension_, split_count_, ToXla(groups));
  }

 private:
  int64_t concat_dimension_ = 0;
  int64_t split_dimension_ = 0;
  int64_t split_count_ = 0;
};

class CollectivePermuteOp : public CollectiveOp<SourceTargetPairs> {
 public:
  explicit CollectivePermuteOp(OpKernelConstruction* construction)
      : CollectiveOp(construction, ParseSourceTargetPairs) {}

 protected:
  xla::XlaOp Lower(xla::XlaOp input, const SourceTargetPairs& pairs,
                   int64_t num_replicas) override {
    // A replica that is not a target receives zeros.
    if (pairs.empty()) return xla::ZerosLike(input);
    if (num_replicas == 1) return input;
    return xla::CollectivePermute(input, pairs);
  }
};

REGISTER_XLA_OP(Name("CrossReplicaSum").CompileTimeConstantInput("group_assignment"),
                CrossReplicaSumOp);
REGISTER_XLA_OP(Name("AllToAll").CompileTimeConstantInput("group_assignment"), AllToAllOp);
REGISTER_XLA_OP(Name("CollectivePermute").CompileTimeConstantInput("source_target_pairs"),
                CollectivePermuteOp);

}  // namespace
}  // namespace tf_tpu_ext
