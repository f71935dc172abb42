// The dataset of a pipeline that runs in processes in another environment.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cc/base/scalar_input.h"
#include "cc/data/pipeline.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/dataset.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::CancellationManager;
using tensorflow::DataTypeVector;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;
using tensorflow::data::DatasetBase;
using tensorflow::data::IteratorBase;
using tensorflow::data::IteratorContext;
using tensorflow::data::SerializationContext;

constexpr char kDescription[] = "PipelineDataset (tf_tpu_ext.io)";

// Checks that an element is what the dataset promises.
absl::Status Check(const std::vector<Tensor>& element, const DataTypeVector& types,
                   const std::vector<PartialTensorShape>& shapes) {
  if (element.size() != types.size()) {
    return absl::InternalError(absl::StrCat(kDescription, ": an element has ", element.size(),
                                            " tensors, expected ", types.size(), "."));
  }
  for (size_t i = 0; i < element.size(); ++i) {
    if (element[i].dtype() != types[i] || !shapes[i].IsCompatibleWith(element[i].shape())) {
      return absl::InvalidArgumentError(absl::StrCat(
          kDescription, ": tensor ", i, " of an element is ",
          tensorflow::DataTypeString(element[i].dtype()), " ", element[i].shape().DebugString(),
          ", expected ", tensorflow::DataTypeString(types[i]), " ", shapes[i].DebugString(),
          " as the pipeline's element_spec says."));
    }
  }
  return absl::OkStatus();
}

class PipelineDataset : public DatasetBase {
 public:
  PipelineDataset(OpKernelContext* context, int64_t number, DataTypeVector types,
                  std::vector<PartialTensorShape> shapes)
      : DatasetBase(tensorflow::data::DatasetContext(context)),
        number_(number),
        types_(std::move(types)),
        shapes_(std::move(shapes)) {}

  std::unique_ptr<IteratorBase> MakeIteratorInternal(const std::string& prefix) const override {
    return std::make_unique<Iterator>(
        Iterator::Params{this, absl::StrCat(prefix, "::TpuExtPipeline")});
  }

  const DataTypeVector& output_dtypes() const override { return types_; }
  const std::vector<PartialTensorShape>& output_shapes() const override { return shapes_; }
  std::string DebugString() const override { return kDescription; }

  absl::Status InputDatasets(std::vector<const DatasetBase*>* inputs) const override {
    return absl::OkStatus();
  }

  absl::Status CheckExternalState() const override {
    return absl::FailedPreconditionError(
        absl::StrCat(kDescription, " reads from processes that belong to this one."));
  }

 protected:
  absl::Status AsGraphDefInternal(SerializationContext* context, DatasetGraphDefBuilder* builder,
                                  tensorflow::Node** output) const override {
    tensorflow::Node* number = nullptr;
    TF_RETURN_IF_ERROR(builder->AddScalar(number_, &number));
    return builder->AddDataset(this, {number}, output);
  }

 private:
  class Iterator : public tensorflow::data::DatasetIterator<PipelineDataset> {
   public:
    explicit Iterator(const Params& params) : DatasetIterator<PipelineDataset>(params) {}

    ~Iterator() override {
      if (cancellation_ != nullptr) cancellation_->DeregisterCallback(token_);
    }

    absl::Status Initialize(IteratorContext* context) override {
      TF_ASSIGN_OR_RETURN(const auto pipeline, Pipeline::Find(dataset()->number_));
      TF_ASSIGN_OR_RETURN(iteration_, pipeline->Iterate());
      CancellationManager* const cancellation = context->cancellation_manager();
      if (cancellation == nullptr) return absl::OkStatus();
      token_ = cancellation->get_cancellation_token();
      absl::Status cancelled = absl::CancelledError("The iteration was cancelled.");
      if (!cancellation->RegisterCallback(token_,
                                          [this, cancelled] { iteration_->Cancel(cancelled); })) {
        return cancelled;
      }
      cancellation_ = cancellation;
      return absl::OkStatus();
    }

   protected:
    absl::Status GetNextInternal(IteratorContext* context, std::vector<Tensor>* element,
                                 bool* end) override {
      TF_RETURN_IF_ERROR(iteration_->Next(element, end));
      return *end ? absl::OkStatus() : Check(*element, dataset()->types_, dataset()->shapes_);
    }

    std::shared_ptr<tensorflow::data::model::Node> CreateNode(
        IteratorContext* context, tensorflow::data::model::Node::Args args) const override {
      return tensorflow::data::model::MakeSourceNode(std::move(args));
    }

    absl::Status SaveInternal(SerializationContext* context,
                              tensorflow::data::IteratorStateWriter* writer) override {
      return NoCheckpoints();
    }

    absl::Status RestoreInternal(IteratorContext* context,
                                 tensorflow::data::IteratorStateReader* reader) override {
      return NoCheckpoints();
    }

   private:
    static absl::Status NoCheckpoints() {
      return absl::UnimplementedError(
          absl::StrCat(kDescription,
                       " has no checkpoints: another process knows how far it has read. Leave the "
                       "iterator out of the checkpoint, and begin again with skip()."));
    }

    std::unique_ptr<PipelineIteration> iteration_;
    CancellationManager* cancellation_ = nullptr;
    tensorflow::CancellationToken token_ = CancellationManager::kInvalidToken;
  };

  const int64_t number_;
  const DataTypeVector types_;
  const std::vector<PartialTensorShape> shapes_;
};

class PipelineDatasetOp : public tensorflow::data::DatasetOpKernel {
 public:
  explicit PipelineDatasetOp(OpKernelConstruction* construction) : DatasetOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("output_types", &types_));
    OP_REQUIRES_OK(construction, construction->GetAttr("output_shapes", &shapes_));
    OP_REQUIRES(construction, types_.size() == shapes_.size(),
                absl::InvalidArgumentError(
                    absl::StrCat(name(), " has ", types_.size(), " output_types and ",
                                 shapes_.size(), " output_shapes, expected as many of both.")));
  }

 protected:
  void MakeDataset(OpKernelContext* context, DatasetBase** output) override {
    const absl::StatusOr<int64_t> number =
        ScalarInput<int64_t>(*context, context->input(0), "pipeline");
    OP_REQUIRES_OK(context, number.status());
    *output = new PipelineDataset(context, *number, types_, shapes_);
  }

 private:
  DataTypeVector types_;
  std::vector<PartialTensorShape> shapes_;
};

REGISTER_KERNEL_BUILDER(Name("TpuExt>PipelineDataset").Device(tensorflow::DEVICE_CPU),
                        PipelineDatasetOp);

}  // namespace
}  // namespace tf_tpu_ext
