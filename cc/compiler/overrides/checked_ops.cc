#include "cc/compiler/overrides/checked_ops.h"

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc/compiler/overrides/override_kernel.h"
#include "cc/compiler/overrides/override_ops.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/op_requires.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "xla/shape.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

const absl::flat_hash_set<std::string>& CheckedOps() {
  static const auto* const ops =
      new absl::flat_hash_set<std::string>({"XlaDynamicSlice", "XlaSpmdShardToFullShape"});
  return *ops;
}

class CheckedDynamicSlice : public OverrideKernel {
 public:
  explicit CheckedDynamicSlice(tensorflow::OpKernelConstruction* construction)
      : OverrideKernel(construction, kCheckedPrefix) {}

  void Compile(tensorflow::XlaOpKernelContext* context) override {
    OP_REQUIRES_VALUE(const xla::Shape operand, context, context->InputXlaShape(0));
    const int64_t rank = operand.dimensions().size();
    OP_REQUIRES_VALUE(const xla::Shape starts, context, context->InputXlaShape(1));
    OP_REQUIRES_VALUE(const xla::Shape sizes, context, context->InputXlaShape(2));
    if (starts.dimensions().size() == 1 && sizes.dimensions().size() == 1) {
      // In the words of XLA's own error.
      OP_REQUIRES(context, sizes.dimensions(0) == starts.dimensions(0),
                  absl::InvalidArgumentError(absl::StrCat(
                      "XlaDynamicSlice has mismatched number of slice sizes (", sizes.dimensions(0),
                      ") and number of start indices (", starts.dimensions(0),
                      "): start_indices and size_indices take one element for each of the ", rank,
                      " dimensions of its input.")));
    }
    for (int input : {1, 2}) {
      const xla::Shape& shape = input == 1 ? starts : sizes;
      OP_REQUIRES(context, shape.dimensions().size() == 1 && shape.dimensions(0) == rank,
                  absl::InvalidArgumentError(absl::StrCat(
                      "XlaDynamicSlice takes ", input == 1 ? "start_indices" : "size_indices",
                      " with one element for each of the ", rank,
                      " dimensions of its input. Received a tensor of shape ",
                      xla::ShapeUtil::HumanString(shape), ".")));
    }
    CompileStock(context);
  }
};

class CheckedShardToFullShape : public OverrideKernel {
 public:
  explicit CheckedShardToFullShape(tensorflow::OpKernelConstruction* construction)
      : OverrideKernel(construction, kCheckedPrefix) {
    OP_REQUIRES_OK(construction, construction->GetAttr("full_shape", &full_shape_));
  }

  void Compile(tensorflow::XlaOpKernelContext* context) override {
    OP_REQUIRES_VALUE(const xla::Shape shard, context, context->InputXlaShape(0));
    const auto full =
        xla::ShapeUtil::MakeValidatedShape(shard.element_type(), full_shape_.dim_sizes());
    OP_REQUIRES(context, full.ok(),
                absl::InvalidArgumentError(absl::StrCat(
                    "XlaSpmdShardToFullShape has full_shape ", full_shape_.DebugString(),
                    ": the bytes of such a tensor are too many to be counted.")));
    CompileStock(context);
  }

 private:
  tensorflow::TensorShape full_shape_;
};

REGISTER_XLA_OP(Name("TpuExt>CheckedXlaSpmdShardToFullShape"), CheckedShardToFullShape);
REGISTER_XLA_OP(Name("TpuExt>CheckedXlaDynamicSlice").CompileTimeConstantInput("size_indices"),
                CheckedDynamicSlice);

[[maybe_unused]] const bool kCheckedOpsRegistered = [] {
  RegisterOverrideOps(kCheckedPrefix, CheckedOps(), "that checks its inputs first.");
  return true;
}();

}  // namespace

void UseCheckedOp(tensorflow::NodeDef* node) {
  if (CheckedOps().contains(node->op())) node->set_op(absl::StrCat(kCheckedPrefix, node->op()));
}

absl::Status UseCheckedOps(tensorflow::FunctionLibraryDefinition* library) {
  return ReplaceByOverrides(kCheckedPrefix, CheckedOps(), library);
}

}  // namespace tf_tpu_ext
