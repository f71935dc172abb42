// Kernels of the ops that convert features to coordinates and sort them: ConvertToCooTensor,
// ConvertToListOfSparseCoreCooTensors, SortListOfSparseCoreCooTensors and
// GetStatsFromListOfSparseCoreCooTensors.
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/sparse_core/coo.h"
#include "cc/sparse_core/kernel_inputs.h"
#include "cc/sparse_core/sorted_ids.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/op_requires.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;

absl::StatusOr<FeatureIds> FeatureOf(const Tensor& indices, const Tensor& ids,
                                     const Tensor& weights) {
  if (ids.dims() != 1 || weights.dims() > 1 || indices.dims() < 1 || indices.dims() > 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "The values have the shape ", ids.shape().DebugString(), ", the weights ",
        weights.shape().DebugString(), " and the indices_or_row_splits ",
        indices.shape().DebugString(),
        "; expected a vector of values, a scalar or vector of weights, and indices [ids, 2], row "
        "splits, or an empty vector for a dense feature."));
  }
  FeatureIds feature;
  feature.indices = ValuesOf<int32_t>(indices);
  feature.ids = ValuesOf<int32_t>(ids);
  feature.weights = ValuesOf<float>(weights);
  if (indices.dims() == 2) {
    feature.kind = FeatureIds::Kind::kSparse;
    feature.index_size = indices.dim_size(1);
  } else if (indices.NumElements() > 0) {
    feature.kind = FeatureIds::Kind::kRagged;
  }
  return feature;
}

class ConvertFeatureOp : public OpKernel {
 public:
  explicit ConvertFeatureOp(OpKernelConstruction* construction) : OpKernel(construction) {
    std::string combiner;
    OP_REQUIRES_OK(construction, construction->GetAttr("combiner", &combiner));
    OP_REQUIRES_VALUE(combiner_, construction, ParseCombiner(combiner));
    OP_REQUIRES_OK(construction, construction->GetAttr("sample_count", &num_samples_));
  }

  void Compute(OpKernelContext* context) final {
    OP_REQUIRES_OK(context, OfOp(*context, Convert(context)));
  }

 protected:
  virtual absl::Status SetOutputs(OpKernelContext* context, Coo coo) const = 0;
  int64_t num_samples() const { return num_samples_; }

 private:
  absl::Status Convert(OpKernelContext* context) const {
    TF_ASSIGN_OR_RETURN(const FeatureIds feature,
                        FeatureOf(context->input(0), context->input(1), context->input(2)));
    TF_ASSIGN_OR_RETURN(Coo coo, ToCoo(feature, num_samples_, combiner_));
    return SetOutputs(context, std::move(coo));
  }

  Combiner combiner_ = Combiner::kSum;
  int64_t num_samples_ = 1;
};

class ConvertToCooTensorOp : public ConvertFeatureOp {
 public:
  using ConvertFeatureOp::ConvertFeatureOp;

 protected:
  absl::Status SetOutputs(OpKernelContext* context, Coo coo) const override {
    context->set_output(0, VectorOf(coo.samples));
    context->set_output(1, VectorOf(coo.ids));
    context->set_output(2, VectorOf(coo.gains));
    return absl::OkStatus();
  }
};

class ConvertToListOp : public ConvertFeatureOp {
 public:
  explicit ConvertToListOp(OpKernelConstruction* construction) : ConvertFeatureOp(construction) {
    place_.num_samples = num_samples();
    OP_REQUIRES_OK(construction, construction->GetAttr("num_sc_per_chip", &place_.cores_per_chip));
    OP_REQUIRES_OK(construction, construction->GetAttr("row_offset", &place_.sample_offset));
    OP_REQUIRES_OK(construction, construction->GetAttr("col_offset", &place_.row_offset));
    OP_REQUIRES_OK(construction, construction->GetAttr("col_shift", &place_.rotation));
    OP_REQUIRES_OK(construction, construction->GetAttr("num_sc_shards", &place_.all_cores));
    OP_REQUIRES_OK(construction,
                   construction->GetAttr("stacked_table_sample_count", &place_.stacked_samples));
    OP_REQUIRES_OK(construction, CheckStackPlace(place_));
  }

 protected:
  absl::Status SetOutputs(OpKernelContext* context, Coo coo) const override {
    TF_ASSIGN_OR_RETURN(const std::vector<Coo> cores, SplitByCore(coo, place_));
    OpOutputList samples, ids, gains;
    TF_RETURN_IF_ERROR(context->output_list("row_ids_list", &samples));
    TF_RETURN_IF_ERROR(context->output_list("col_ids_list", &ids));
    TF_RETURN_IF_ERROR(context->output_list("gains_list", &gains));
    for (int i = 0; i < static_cast<int>(cores.size()); ++i) {
      samples.set(i, VectorOf(cores[i].samples));
      ids.set(i, VectorOf(cores[i].ids));
      gains.set(i, VectorOf(cores[i].gains));
    }
    return absl::OkStatus();
  }

 private:
  StackPlace place_;
};

// Sorts the features of one SparseCore's samples.
class SortFeaturesOp : public OpKernel {
 public:
  explicit SortFeaturesOp(OpKernelConstruction* construction) : OpKernel(construction) {
    int64_t replicas = 0, cores_per_chip = 0, features = 0;
    std::vector<int64_t> samples;
    OP_REQUIRES_OK(construction, construction->GetAttr("num_replica", &replicas));
    OP_REQUIRES_OK(construction, construction->GetAttr("num_sc_per_chip", &cores_per_chip));
    OP_REQUIRES_OK(construction, construction->GetAttr("N", &features));
    OP_REQUIRES_OK(construction, construction->GetAttr("sample_count_list", &samples));
    OP_REQUIRES_OK(construction, construction->GetAttr("col_offset_list", &row_offsets_));
    OP_REQUIRES_OK(construction, construction->GetAttr("table_vocab_size", &options_.num_rows));
    OP_REQUIRES_OK(construction, construction->GetAttr("table_name", &options_.table));
    options_.num_cores = replicas * cores_per_chip;
    OP_REQUIRES(
        construction, IsPowerOfTwo(options_.num_cores),
        absl::FailedPreconditionError(absl::StrCat(
            "Op ", name(), " divides table '", options_.table, "' over ", replicas, " replicas of ",
            cores_per_chip, " SparseCores; expected a power of two of them in all.")));
    OP_REQUIRES(construction,
                static_cast<int64_t>(samples.size()) == features &&
                    static_cast<int64_t>(row_offsets_.size()) == features,
                absl::InvalidArgumentError(absl::StrCat(
                    "Op ", name(), " has ", features, " features, a sample_count_list of ",
                    samples.size(), " and a col_offset_list of ", row_offsets_.size(),
                    "; expected one number for each feature.")));
    options_.num_samples = std::accumulate(samples.begin(), samples.end(), int64_t{0});
    OP_REQUIRES(construction, options_.num_samples > 0,
                absl::InvalidArgumentError(
                    absl::StrCat("Op ", name(), " has a sample_count_list with the sum ",
                                 options_.num_samples, "; expected at least one sample.")));
  }

  void Compute(OpKernelContext* context) final {
    OP_REQUIRES_OK(context, OfOp(*context, Sort(context)));
  }

 protected:
  virtual void SetOutputs(OpKernelContext* context, const SortedIds& sorted) const = 0;

  SortOptions options_;

 private:
  absl::Status Sort(OpKernelContext* context) const {
    OpInputList samples, ids, gains;
    TF_RETURN_IF_ERROR(context->input_list("row_ids_list", &samples));
    TF_RETURN_IF_ERROR(context->input_list("col_ids_list", &ids));
    TF_RETURN_IF_ERROR(context->input_list("gains_list", &gains));
    std::vector<CooView> features;
    for (int i = 0; i < ids.size(); ++i) {
      features.push_back(ViewOf(samples[i], ids[i], gains[i]));
      TF_RETURN_IF_ERROR(CheckLengths(features.back()));
    }
    TF_ASSIGN_OR_RETURN(const SortedIds sorted,
                        SortByCore(MergeFeatures(features, row_offsets_), options_));
    SetOutputs(context, sorted);
    return absl::OkStatus();
  }

  std::vector<int32_t> row_offsets_;
};

class SortListOp : public SortFeaturesOp {
 public:
  explicit SortListOp(OpKernelConstruction* construction) : SortFeaturesOp(construction) {
    OP_REQUIRES_OK(construction,
                   construction->GetAttr("max_ids_per_sparse_core", &options_.max_ids));
    OP_REQUIRES_OK(construction, construction->GetAttr("max_unique_ids_per_sparse_core",
                                                       &options_.max_unique_ids));
  }

 protected:
  void SetOutputs(OpKernelContext* context, const SortedIds& sorted) const override {
    context->set_output(0, VectorOf(sorted.ids.samples));
    context->set_output(1, VectorOf(sorted.ids.ids));
    context->set_output(2, VectorOf(sorted.ids.gains));
    context->set_output(3, VectorOf(sorted.starts));
  }
};

class GetStatsOp : public SortFeaturesOp {
 public:
  using SortFeaturesOp::SortFeaturesOp;

 protected:
  void SetOutputs(OpKernelContext* context, const SortedIds& sorted) const override {
    context->set_output(0, ScalarOf(sorted.max_ids));
    context->set_output(1, ScalarOf(sorted.max_unique_ids));
  }
};

REGISTER_KERNEL_BUILDER(Name("ConvertToCooTensor").Device(tensorflow::DEVICE_CPU),
                        ConvertToCooTensorOp);
REGISTER_KERNEL_BUILDER(Name("ConvertToListOfSparseCoreCooTensors").Device(tensorflow::DEVICE_CPU),
                        ConvertToListOp);
REGISTER_KERNEL_BUILDER(Name("SortListOfSparseCoreCooTensors").Device(tensorflow::DEVICE_CPU),
                        SortListOp);
REGISTER_KERNEL_BUILDER(
    Name("GetStatsFromListOfSparseCoreCooTensors").Device(tensorflow::DEVICE_CPU), GetStatsOp);

}  // namespace
}  // namespace tf_tpu_ext
