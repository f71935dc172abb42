#include "cc/kernels/cpu_first.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "cc/kernels/nested_kernel.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

class CpuFirstOp : public AsyncOpKernel {
 public:
  CpuFirstOp(OpKernelConstruction* construction, std::unique_ptr<OpKernel> cpu,
             std::unique_ptr<OpKernel> compiled)
      : AsyncOpKernel(construction), cpu_(std::move(cpu)), compiled_(std::move(compiled)) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    // The compiled op needs the original inputs: a kernel that refuses a later index may already
    // have written.
    const absl::Status status = ComputeNested(cpu_.get(), /*keep_inputs=*/true, context);
    if (IsRefusal(status)) {
      compiled_->AsAsync()->ComputeAsync(context, std::move(done));
      return;
    }
    context->SetStatus(status);
    done();
  }
  bool IsExpensive() override { return cpu_->IsExpensive(); }

 private:
  const std::unique_ptr<OpKernel> cpu_;
  const std::unique_ptr<OpKernel> compiled_;
};

}  // namespace

bool CpuRefusesInputs(const tensorflow::NodeDef& node) {
  static const auto* const ops = new absl::flat_hash_set<std::string>({
      "Bincount",
      "Conv",
      "Conv2D",
      "Conv2DBackpropFilter",
      "Conv2DBackpropInput",
      "Conv3D",
      "Conv3DBackpropFilterV2",
      "Conv3DBackpropInputV2",
      "DenseBincount",
      "GatherNd",
      "MaxPool",
      "MaxPoolGrad",
      "MaxPoolGradGrad",
      "MaxPoolGradGradV2",
      "MaxPoolGradV2",
      "MaxPoolV2",
      "RngReadAndSkip",
      "RngSkip",
      "ScatterNd",
      "SparseSoftmaxCrossEntropyWithLogits",
      "StatefulStandardNormalV2",
      "StatefulTruncatedNormal",
      "StatefulUniform",
      "StatefulUniformFullInt",
      "StatefulUniformInt",
      "StatelessRandomNormalV2",
      "StatelessRandomUniformFullIntV2",
      "StatelessRandomUniformIntV2",
      "StatelessRandomUniformV2",
      "StatelessTruncatedNormalV2",
      "TensorScatterAdd",
      "TensorScatterMax",
      "TensorScatterMin",
      "TensorScatterSub",
      "TensorScatterUpdate",
      "ToBool",
  });
  return ops->contains(node.op());
}

bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsUnimplemented(status);
}

OpKernel* MakeCpuFirst(OpKernelConstruction* construction, std::unique_ptr<OpKernel> cpu,
                       std::unique_ptr<OpKernel> compiled) {
  return new CpuFirstOp(construction, std::move(cpu), std::move(compiled));
}

}  // namespace tf_tpu_ext
