// Kernels of the ops that divide ids into minibatches and pack them into a chip's buffers:
// ConvertToSparseCoreCsrWrappedCooTensor, GetMinibatchSplitsWithPhysicalReplica,
// GetMinibatchesInCsrWithPhysicalReplica and StoreMinibatchStatisticsInFdo.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/log/log.h"
#include "absl/strings/str_cat.h"
#include "cc/sparse_core/csr.h"
#include "cc/sparse_core/kernel_inputs.h"
#include "cc/sparse_core/minibatch_splits.h"
#include "tensorflow/compiler/jit/flags.h"
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
using tensorflow::Tensor;
using tensorflow::TensorShape;

// A TensorFlow flag.
absl::StatusOr<int> DivisionLevels() {
  const int levels =
      tensorflow::GetXlaSparseCoreFlags()->tf_xla_sparse_core_minibatch_max_division_level;
  if (levels >= 1 && levels <= kMaxDivisionLevel) return levels;
  return absl::InvalidArgumentError(
      absl::StrCat("The flag tf_xla_sparse_core_minibatch_max_division_level is ", levels,
                   "; expected 1 to ", kMaxDivisionLevel, "."));
}

// Each replica has its own splits. A minibatch ends where it ends for any replica.
absl::StatusOr<std::vector<int>> BucketsOf(const Tensor& splits, int levels) {
  int64_t all = 0;
  for (int64_t of_replica : ValuesOf<int64_t>(splits)) all |= of_replica;
  return ToBuckets(all, levels);
}

class PackOp : public OpKernel {
 public:
  explicit PackOp(OpKernelConstruction* construction) : OpKernel(construction) {
    int64_t replicas = 0;
    OP_REQUIRES_OK(construction, construction->GetAttr("num_replica", &replicas));
    OP_REQUIRES_OK(construction, construction->GetAttr("num_sc_per_chip", &cores_per_chip_));
    OP_REQUIRES_OK(construction,
                   construction->GetAttr("max_minibatches_per_sc", &options_.max_minibatches));
    OP_REQUIRES_OK(construction,
                   construction->GetAttr("max_ids_per_chip_per_sample", &ids_per_sample_));
    OP_REQUIRES_OK(construction, construction->GetAttr("table_name", &options_.table));
    options_.num_cores = replicas * cores_per_chip_;
  }

  void Compute(OpKernelContext* context) final {
    OP_REQUIRES_OK(context, OfOp(*context, Pack(context)));
  }

 protected:
  // Sets in `options` how the ids are divided.
  virtual absl::Status ReadIds(OpKernelContext* context, CsrOptions* options,
                               std::vector<CoreIds>* cores) const = 0;
  void SetSamples(int64_t samples_of_chip) { options_.max_ids = ids_per_sample_ * samples_of_chip; }

  CsrOptions options_;
  int64_t cores_per_chip_ = 1;

 private:
  absl::Status Pack(OpKernelContext* context) const {
    CsrOptions options = options_;
    std::vector<CoreIds> cores;
    TF_RETURN_IF_ERROR(ReadIds(context, &options, &cores));
    const int64_t row_pointers = RowPointersOf(options, cores_per_chip_);
    if (std::max(row_pointers, options.max_ids) > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat("The buffers of table '", options.table, "' have room for ", options.max_ids,
                       " ids and ", row_pointers, " row pointers; expected numbers of 31 bits."));
    }
    Tensor *pointers = nullptr, *samples = nullptr, *rows = nullptr, *gains = nullptr;
    const TensorShape shape({options.max_ids});
    TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({row_pointers}), &pointers));
    TF_RETURN_IF_ERROR(context->allocate_output(1, shape, &samples));
    TF_RETURN_IF_ERROR(context->allocate_output(2, shape, &rows));
    TF_RETURN_IF_ERROR(context->allocate_output(3, shape, &gains));
    const auto span = [](auto flat) { return absl::MakeSpan(flat.data(), flat.size()); };
    TF_ASSIGN_OR_RETURN(const CsrSizes sizes,
                        PackCsr(cores, options,
                                {span(pointers->flat<int32_t>()), span(samples->flat<int32_t>()),
                                 span(rows->flat<int32_t>()), span(gains->flat<float>())}));
    if (sizes.dropped > 0) {
      LOG(WARNING) << "Op " << name() << " drops " << sizes.dropped << " ids of table '"
                   << options.table << "': a chip has room for " << options.max_ids << ".";
    }
    context->set_output(4, ScalarOf(static_cast<int32_t>(sizes.row_pointers)));
    context->set_output(5, ScalarOf(static_cast<int32_t>(sizes.ids)));
    context->set_output(6, ScalarOf(static_cast<int32_t>(sizes.minibatches)));
    return absl::OkStatus();
  }

  int64_t ids_per_sample_ = 1;
};

// Takes the ids of each SparseCore's samples separately.
class PackSortedListsOp : public PackOp {
 public:
  explicit PackSortedListsOp(OpKernelConstruction* construction) : PackOp(construction) {
    int64_t samples_of_core = 0;
    OP_REQUIRES_OK(construction, construction->GetAttr("sample_count_per_sc", &samples_of_core));
    OP_REQUIRES_OK(construction,
                   construction->GetAttr("allow_id_dropping", &options_.allow_id_dropping));
    SetSamples(samples_of_core * cores_per_chip_);
  }

 protected:
  absl::Status ReadIds(OpKernelContext* context, CsrOptions* options,
                       std::vector<CoreIds>* cores) const override {
    OpInputList samples, rows, gains, starts;
    TF_RETURN_IF_ERROR(context->input_list("sorted_row_ids_list", &samples));
    TF_RETURN_IF_ERROR(context->input_list("sorted_col_ids_list", &rows));
    TF_RETURN_IF_ERROR(context->input_list("sorted_gains_list", &gains));
    TF_RETURN_IF_ERROR(context->input_list("id_counts_list", &starts));
    const Tensor* splits;
    TF_RETURN_IF_ERROR(context->input("splits", &splits));
    TF_ASSIGN_OR_RETURN(const int levels, DivisionLevels());
    TF_ASSIGN_OR_RETURN(std::vector<int> buckets, BucketsOf(*splits, levels));
    for (int i = 0; i < rows.size(); ++i) {
      cores->push_back({ViewOf(samples[i], rows[i], gains[i]), ValuesOf<int32_t>(starts[i])});
    }
    // Without minibatches, ids were counted without buckets.
    const bool in_buckets =
        static_cast<int64_t>(cores->front().starts.size()) != options->num_cores + 1;
    if (in_buckets || !buckets.empty()) {
      options->buckets = 1 << levels;
      options->splits = std::move(buckets);
    }
    return absl::OkStatus();
  }
};

// Takes the ids of all of the chip's samples together.
class PackMinibatchesOp : public PackOp {
 public:
  explicit PackMinibatchesOp(OpKernelConstruction* construction) : PackOp(construction) {
    int64_t samples = 0;
    OP_REQUIRES_OK(construction, construction->GetAttr("sample_count", &samples));
    SetSamples(samples);
  }

 protected:
  absl::Status ReadIds(OpKernelContext* context, CsrOptions* options,
                       std::vector<CoreIds>* cores) const override {
    const Tensor *samples, *rows, *gains, *splits, *starts;
    TF_RETURN_IF_ERROR(context->input("row_ids", &samples));
    TF_RETURN_IF_ERROR(context->input("col_ids", &rows));
    TF_RETURN_IF_ERROR(context->input("gains", &gains));
    TF_RETURN_IF_ERROR(context->input("splits", &splits));
    TF_RETURN_IF_ERROR(context->input("id_counts", &starts));
    TF_ASSIGN_OR_RETURN(const int levels, DivisionLevels());
    TF_ASSIGN_OR_RETURN(options->splits, BucketsOf(*splits, levels));
    options->buckets = 1 << levels;
    const int64_t parts = options->num_cores * options->buckets;
    if (starts->NumElements() != cores_per_chip_ * parts + 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("The id_counts of table '", options->table, "' have ", starts->NumElements(),
                       " numbers; expected ", cores_per_chip_ * parts + 1, "."));
    }
    for (int64_t core = 0; core < cores_per_chip_; ++core) {
      cores->push_back({ViewOf(*samples, *rows, *gains),
                        ValuesOf<int32_t>(*starts).subspan(core * parts, parts + 1)});
    }
    return absl::OkStatus();
  }
};

class PlanMinibatchesOp : public OpKernel {
 public:
  explicit PlanMinibatchesOp(OpKernelConstruction* construction) : OpKernel(construction) {
    int64_t replicas = 0;
    OP_REQUIRES_OK(construction, construction->GetAttr("num_replica", &replicas));
    OP_REQUIRES_OK(construction,
                   construction->GetAttr("num_sc_per_chip", &options_.cores_per_chip));
    OP_REQUIRES_OK(construction, construction->GetAttr("sample_count", &options_.num_samples));
    OP_REQUIRES_OK(construction, construction->GetAttr("table_vocab_size", &options_.num_rows));
    OP_REQUIRES_OK(construction, construction->GetAttr("table_name", &options_.table));
    options_.num_cores = replicas * options_.cores_per_chip;
    OP_REQUIRES_VALUE(options_.levels, construction, DivisionLevels());
  }

  void Compute(OpKernelContext* context) override {
    // Input 0 is the name of the program, for a profile.
    absl::StatusOr<MinibatchPlan> plan =
        PlanMinibatches(ViewOf(context->input(1), context->input(2), context->input(3)), options_);
    OP_REQUIRES_OK(context, OfOp(*context, plan.status()));
    context->set_output(0, VectorOf(plan->ids.samples));
    context->set_output(1, VectorOf(plan->ids.ids));
    context->set_output(2, VectorOf(plan->ids.gains));
    context->set_output(3, ScalarOf(plan->splits));
    context->set_output(4, VectorOf(plan->starts));
    context->set_output(5, ScalarOf(plan->max_ids));
    context->set_output(6, ScalarOf(plan->max_unique_ids));
  }

 private:
  MinibatchOptions options_;
};

// A TPU keeps these numbers for its compiler, which sizes its buffers accordingly. Buffers here
// hold any number of ids.
class StoreStatisticsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override {}
};

REGISTER_KERNEL_BUILDER(
    Name("ConvertToSparseCoreCsrWrappedCooTensor").Device(tensorflow::DEVICE_CPU),
    PackSortedListsOp);
REGISTER_KERNEL_BUILDER(
    Name("GetMinibatchesInCsrWithPhysicalReplica").Device(tensorflow::DEVICE_CPU),
    PackMinibatchesOp);
REGISTER_KERNEL_BUILDER(
    Name("GetMinibatchSplitsWithPhysicalReplica").Device(tensorflow::DEVICE_CPU),
    PlanMinibatchesOp);
REGISTER_KERNEL_BUILDER(Name("StoreMinibatchStatisticsInFdo").Device(tensorflow::DEVICE_CPU),
                        StoreStatisticsOp);

}  // namespace
}  // namespace tf_tpu_ext
