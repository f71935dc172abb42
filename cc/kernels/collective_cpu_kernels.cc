// CPU kernels of CrossReplicaSum, AllToAll and CollectivePermute for one replica: there is no other
// replica to meet, so each is the identity, or an error that points to tpu.replicate.

#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cc/ops/all_to_all_shapes.h"
#include "cc/ops/replica_groups.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/op_requires.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"

namespace tf_tpu_ext {
namespace {

using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

// Positions of the ops' inputs and outputs.
constexpr int kInput = 0;
constexpr int kReplicas = 1;  // group_assignment or source_target_pairs
constexpr int kOutput = 0;

// Reads the second input with `parser`, for a computation with one replica.
template <class Replicas>
absl::StatusOr<Replicas> ParseReplicas(
    const OpKernel& kernel, const Tensor& replicas,
    absl::StatusOr<Replicas> (*parser)(const CollectiveContext&, absl::Span<const int64_t>,
                                       absl::Span<const int64_t>)) {
  const auto flat = replicas.flat<int32_t>();
  const std::vector<int64_t> values(flat.data(), flat.data() + flat.size());
  return parser({kernel.type_string(), /*num_replicas=*/1}, replicas.shape().dim_sizes(), values);
}

class CrossReplicaSumOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    OP_REQUIRES_OK(context,
                   ParseReplicas(*this, context->input(kReplicas), ParseGroupAssignment).status());
    context->set_output(kOutput, context->input(kInput));
  }
};

class AllToAllOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    OP_REQUIRES_OK(context, CheckAllToAllShapes(def(), {context->input(kInput).shape(),
                                                        context->input(kReplicas).shape()}));
    OP_REQUIRES_OK(context,
                   ParseReplicas(*this, context->input(kReplicas), ParseGroupAssignment).status());
    context->set_output(kOutput, context->input(kInput));
  }
};

class CollectivePermuteOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& input = context->input(kInput);
    OP_REQUIRES_VALUE(const SourceTargetPairs pairs, context,
                      ParseReplicas(*this, context->input(kReplicas), ParseSourceTargetPairs));
    if (!pairs.empty()) {
      context->set_output(kOutput, input);
      return;
    }
    // A replica that is not a target receives zeros; zero is all zero bits in every numeric type.
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(kOutput, input.shape(), &output));
    if (output->TotalBytes() > 0) std::memset(output->data(), 0, output->TotalBytes());
  }
};

REGISTER_KERNEL_BUILDER(Name("CrossReplicaSum").Device(tensorflow::DEVICE_CPU), CrossReplicaSumOp);
REGISTER_KERNEL_BUILDER(Name("AllToAll").Device(tensorflow::DEVICE_CPU), AllToAllOp);
REGISTER_KERNEL_BUILDER(Name("CollectivePermute").Device(tensorflow::DEVICE_CPU),
                        CollectivePermuteOp);

}  // namespace
}  // namespace tf_tpu_ext
