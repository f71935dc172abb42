// Kernels of the ops that queue a core's batches: EnqueueTPUEmbedding*, and the dynamic ones, whose
// core is an input.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/base/process.h"
#include "cc/base/scalar_input.h"
#include "cc/device/virtual_device.h"
#include "cc/embedding/batch.h"
#include "cc/embedding/batch_message.h"
#include "cc/embedding/current_embedding.h"
#include "cc/transfer/channel_op.h"
#include "cc/transfer/channels.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using Kind = FeatureValues::Kind;
using Mode = tensorflow::tpu::TPUEmbeddingConfiguration::Mode;

template <typename From, typename To>
std::vector<To> Copy(const Tensor& tensor) {
  const auto values = tensor.flat<From>();
  return std::vector<To>(values.data(), values.data() + values.size());
}

std::vector<int64_t> Integers(const Tensor& tensor) {
  return tensor.dtype() == tensorflow::DT_INT32 ? Copy<int32_t, int64_t>(tensor)
                                                : Copy<int64_t, int64_t>(tensor);
}

std::vector<float> Floats(const Tensor& tensor) {
  return tensor.dtype() == tensorflow::DT_FLOAT ? Copy<float, float>(tensor)
                                                : Copy<double, float>(tensor);
}

class EnqueueOp : public FeedOp {
 public:
  explicit EnqueueOp(OpKernelConstruction* construction) : FeedOp(construction) {
    if (construction->HasAttr("combiners")) {
      OP_REQUIRES_OK(construction, construction->GetAttr("combiners", &combiners_));
    }
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    ChannelKey key;
    absl::StatusOr<BatchMessage> message = MakeMessage(context, &key);
    if (!message.ok()) return Fail(context, message.status(), done);
    Send(context, key, kFeedCapacity, Wrap(*std::move(message)), done);
  }

 protected:
  virtual absl::StatusOr<EmbeddingBatch> MakeBatch(OpKernelContext* context,
                                                   const EmbeddingLayout& layout) const = 0;

  const std::vector<std::string>& combiners() const { return combiners_; }

 private:
  absl::StatusOr<BatchMessage> MakeMessage(OpKernelContext* context, ChannelKey* key) const {
    TF_RETURN_IF_ERROR(KeyOf(context, kEmbeddingName, key));
    TF_ASSIGN_OR_RETURN(std::shared_ptr<EmbeddingEngine> engine,
                        Process::Get().embedding->Require(name()));
    TF_ASSIGN_OR_RETURN(const bool training, IsTraining(context, engine->layout().mode));
    TF_ASSIGN_OR_RETURN(EmbeddingBatch made, MakeBatch(context, engine->layout()));
    auto batch = std::make_shared<EmbeddingBatch>(std::move(made));
    batch->training = training;
    return BatchMessage{std::move(engine), std::move(batch)};
  }

  absl::StatusOr<bool> IsTraining(OpKernelContext* context, Mode mode) const {
    const Tensor* input;
    TF_RETURN_IF_ERROR(context->input("mode_override", &input));
    TF_ASSIGN_OR_RETURN(const std::string override,
                        ScalarInput<tensorflow::tstring>(*context, *input, "mode_override"));
    if (override == "train") return true;
    if (override == "inference") return false;
    if (override == "unspecified") {
      return mode != tensorflow::tpu::TPUEmbeddingConfiguration::INFERENCE;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "The mode_override of op ", name(), " is '", override,
        "'; it must be 'train', 'inference', or 'unspecified' for the configuration's mode."));
  }

  std::vector<std::string> combiners_;
};

// Takes ids with sample indices or row splits, and weights.
class EnqueueFeaturesOp : public EnqueueOp {
 public:
  using EnqueueOp::EnqueueOp;

 protected:
  absl::StatusOr<std::vector<FeatureValues>> Features(OpKernelContext* context,
                                                      const char* indices_name) const {
    OpInputList indices, ids, weights;
    TF_RETURN_IF_ERROR(context->input_list(indices_name, &indices));
    TF_RETURN_IF_ERROR(context->input_list("embedding_indices", &ids));
    TF_RETURN_IF_ERROR(context->input_list("aggregation_weights", &weights));
    std::vector<FeatureValues> features(ids.size());
    for (int i = 0; i < ids.size(); ++i) {
      FeatureValues& feature = features[i];
      if (indices[i].dims() > 2) {
        return absl::InvalidArgumentError(absl::StrCat(
            "The sample indices or row splits of feature ", i, " of op ", name(),
            " have the shape ", indices[i].shape().DebugString(), "; their rank is at most two."));
      }
      feature.kind = KindOf(indices[i]);
      feature.indices = Integers(indices[i]);
      feature.rank = indices[i].dims() == 2 ? static_cast<int>(indices[i].dim_size(1)) : 1;
      feature.ids = Integers(ids[i]);
      feature.weights = Floats(weights[i]);
    }
    return features;
  }

  virtual Kind KindOf(const Tensor& indices) const = 0;
};

// The kind of every feature follows from its sample indices: a matrix for a sparse tensor, row
// splits for a ragged one, and nothing for a dense one.
class EnqueueArbitraryOp : public EnqueueFeaturesOp {
 public:
  using EnqueueFeaturesOp::EnqueueFeaturesOp;

 protected:
  Kind KindOf(const Tensor& indices) const override {
    if (indices.dims() == 2) return Kind::kSparse;
    return indices.NumElements() == 0 ? Kind::kDense : Kind::kRagged;
  }
  absl::StatusOr<EmbeddingBatch> MakeBatch(OpKernelContext* context,
                                           const EmbeddingLayout& layout) const override {
    TF_ASSIGN_OR_RETURN(const std::vector<FeatureValues> features,
                        Features(context, "sample_indices_or_row_splits"));
    return BatchOfOutputs(layout, features, combiners());
  }
};

// All features of a table share a list of ids, whose sample indices give the sample and feature.
class EnqueueSparseOp : public EnqueueFeaturesOp {
 public:
  using EnqueueFeaturesOp::EnqueueFeaturesOp;

 protected:
  Kind KindOf(const Tensor&) const override { return Kind::kSparse; }
  absl::StatusOr<EmbeddingBatch> MakeBatch(OpKernelContext* context,
                                           const EmbeddingLayout& layout) const override {
    TF_ASSIGN_OR_RETURN(const std::vector<FeatureValues> features,
                        Features(context, "sample_indices"));
    return BatchOfOutputs(layout, features, combiners());
  }
};

// Takes features that name their tables.
class EnqueueTableFeaturesOp : public EnqueueFeaturesOp {
 public:
  explicit EnqueueTableFeaturesOp(OpKernelConstruction* construction)
      : EnqueueFeaturesOp(construction) {
    std::vector<int> num_features;
    OP_REQUIRES_OK(construction, construction->GetAttr("table_ids", &table_ids_));
    OP_REQUIRES_OK(construction, construction->GetAttr("max_sequence_lengths", &lengths_));
    OP_REQUIRES_OK(construction, construction->GetAttr("num_features", &num_features));
    for (int number : num_features) {
      OP_REQUIRES(construction, number == 1,
                  absl::UnimplementedError(absl::StrCat(
                      "Op ", name(), " has num_features=", number,
                      "; a virtual TPU takes one feature for each input. Split the input.")));
    }
  }

 protected:
  absl::StatusOr<EmbeddingBatch> MakeTableBatch(OpKernelContext* context, const char* indices,
                                                const EmbeddingLayout& layout) const {
    TF_ASSIGN_OR_RETURN(const std::vector<FeatureValues> features, Features(context, indices));
    return BatchOfTableFeatures(layout, features, table_ids_, lengths_, combiners());
  }

 private:
  std::vector<int> table_ids_;
  std::vector<int> lengths_;
};

class EnqueueSparseTensorOp : public EnqueueTableFeaturesOp {
 public:
  using EnqueueTableFeaturesOp::EnqueueTableFeaturesOp;

 protected:
  Kind KindOf(const Tensor&) const override { return Kind::kSparse; }
  absl::StatusOr<EmbeddingBatch> MakeBatch(OpKernelContext* context,
                                           const EmbeddingLayout& layout) const override {
    return MakeTableBatch(context, "sample_indices", layout);
  }
};

class EnqueueRaggedTensorOp : public EnqueueTableFeaturesOp {
 public:
  using EnqueueTableFeaturesOp::EnqueueTableFeaturesOp;

 protected:
  Kind KindOf(const Tensor&) const override { return Kind::kRagged; }
  absl::StatusOr<EmbeddingBatch> MakeBatch(OpKernelContext* context,
                                           const EmbeddingLayout& layout) const override {
    return MakeTableBatch(context, "sample_splits", layout);
  }
};

// Takes one id for each row of the output.
class EnqueueIntegerOp : public EnqueueOp {
 public:
  using EnqueueOp::EnqueueOp;

 protected:
  absl::StatusOr<EmbeddingBatch> MakeBatch(OpKernelContext* context,
                                           const EmbeddingLayout& layout) const override {
    OpInputList ids;
    TF_RETURN_IF_ERROR(context->input_list("batch", &ids));
    std::vector<FeatureValues> features(ids.size());
    for (int i = 0; i < ids.size(); ++i) features[i].ids = Integers(ids[i]);
    return BatchOfOutputs(layout, features, combiners());
  }
};

#define REGISTER_ENQUEUE(op, kernel)                                        \
  REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::DEVICE_CPU), kernel); \
  REGISTER_KERNEL_BUILDER(Name(op).Device(kTpuDeviceType).HostMemory("mode_override"), kernel)

REGISTER_ENQUEUE("EnqueueTPUEmbeddingArbitraryTensorBatch", EnqueueArbitraryOp);
REGISTER_ENQUEUE("EnqueueTPUEmbeddingIntegerBatch", EnqueueIntegerOp);
REGISTER_ENQUEUE("EnqueueTPUEmbeddingRaggedTensorBatch", EnqueueRaggedTensorOp);
REGISTER_ENQUEUE("EnqueueTPUEmbeddingSparseBatch", EnqueueSparseOp);
REGISTER_ENQUEUE("EnqueueTPUEmbeddingSparseTensorBatch", EnqueueSparseTensorOp);
REGISTER_KERNEL_BUILDER(
    Name("DynamicEnqueueTPUEmbeddingArbitraryTensorBatch").Device(tensorflow::DEVICE_CPU),
    EnqueueArbitraryOp);
REGISTER_KERNEL_BUILDER(
    Name("DynamicEnqueueTPUEmbeddingRaggedTensorBatch").Device(tensorflow::DEVICE_CPU),
    EnqueueRaggedTensorOp);

}  // namespace
}  // namespace tf_tpu_ext
