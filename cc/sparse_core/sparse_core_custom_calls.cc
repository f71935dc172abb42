// How a running program looks up rows of sharded tables and updates them. The calls compute without
// waiting, because the program has already exchanged ids and gradients.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cc/base/custom_call.h"
#include "cc/embedding/quantization.h"
#include "cc/embedding/row_optimizer.h"
#include "cc/program/sparse_core_call.h"
#include "cc/sparse_core/sharded_table.h"
#include "cc/transfer/call_buffers.h"
#include "xla/ffi/api/c_api.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

// The first operands of all calls.
constexpr size_t kPacked = 0;
constexpr size_t kChip = 1;

// The words in a call's buffers, whose sizes are checked first, because `backend_config` and shapes
// may come from a compilation cache.
class Buffers {
 public:
  Buffers(const SparseCoreShape& shape, const XLA_FFI_CallFrame& frame)
      : shape_(shape), operands_(OperandBuffers(frame.args)), results_(ResultBuffers(frame.rets)) {}

  absl::Status Check(absl::Span<const int64_t> operands, absl::Span<const int64_t> results) const {
    TF_RETURN_IF_ERROR(Check("operand", operands_, operands));
    TF_RETURN_IF_ERROR(Check("result", results_, results));
    const int32_t chip = *Operand<int32_t>(kChip);
    if (chip >= 0 && chip < shape_.chips) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("Op ", shape_.op, " runs on replica ", chip,
                                            "; it was compiled for ", shape_.chips, "."));
  }

  ShardIds Ids() const {
    return ShardIds(shape_,
                    absl::MakeConstSpan(Operand<int32_t>(kPacked), shape_.chips * shape_.words()),
                    *Operand<int32_t>(kChip));
  }

  size_t num_results() const { return results_.size(); }
  template <typename T>
  const T* Operand(size_t i) const {
    return static_cast<const T*>(operands_[i]->data);
  }
  template <typename T>
  T* Result(size_t i) const {
    return static_cast<T*>(results_[i]->data);
  }

 private:
  absl::Status Check(const char* kind, const CallBuffers& buffers,
                     absl::Span<const int64_t> sizes) const {
    bool same = buffers.size() == sizes.size();
    for (size_t i = 0; same && i < sizes.size(); ++i) {
      same = ShapeOf(*buffers[i]).num_elements() == sizes[i] &&
             tensorflow::DataTypeSize(ToTensorFlowType(buffers[i]->dtype)) == sizeof(float);
    }
    if (same) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("A ", kind, " of op ", shape_.op,
                                            " is not of the size that the op was compiled for."));
  }

  const SparseCoreShape& shape_;
  const CallBuffers operands_;
  const CallBuffers results_;
};

int64_t AllSamples(const SparseCoreShape& shape) {
  return int64_t{shape.chips} * shape.samples * shape.width;
}

int64_t Shard(const SparseCoreShape& shape) { return int64_t{shape.rows} * shape.width; }

class Lookup : public CustomCall {
 public:
  explicit Lookup(SparseLookupCall call) : call_(std::move(call)) {}

  absl::Status Execute(XLA_FFI_CallFrame* frame) const override {
    const SparseCoreShape& shape = call_.shape;
    const Buffers buffers(shape, *frame);
    const int64_t packed = shape.chips * shape.words(), activations = AllSamples(shape);
    TF_RETURN_IF_ERROR(buffers.Check({packed, 1, Shard(shape)}, {activations}));
    float* const result = buffers.Result<float>(0);
    std::fill_n(result, activations, 0.0f);
    const auto quantize = [this](float value) { return Quantize(call_.quantization, value); };
    const QuantizeFn quantize_fn = quantize;
    return AddRows(shape, buffers.Ids(), buffers.Operand<float>(2),
                   call_.quantization.enabled() ? &quantize_fn : nullptr, result);
  }

 private:
  const SparseLookupCall call_;
};

class Update : public CustomCall {
 public:
  Update(SparseUpdateCall call, RowOptimizer optimizer)
      : call_(std::move(call)), optimizer_(std::move(optimizer)) {}

  absl::Status Execute(XLA_FFI_CallFrame* frame) const override {
    const SparseCoreShape& shape = call_.shape;
    const Buffers buffers(shape, *frame);
    const size_t num_tables = 1 + optimizer_.slots().size();
    std::vector<int64_t> sizes = {shape.chips * shape.words(), 1, AllSamples(shape), 1};
    sizes.insert(sizes.end(), num_tables, Shard(shape));
    TF_RETURN_IF_ERROR(
        buffers.Check(sizes, absl::MakeConstSpan(sizes).subspan(kTables, num_tables)));
    TF_ASSIGN_OR_RETURN(const RowGradients gradients,
                        SumGradients(shape, buffers.Ids(), buffers.Operand<float>(2)));
    std::vector<float*> tables(num_tables);
    for (size_t i = 0; i < num_tables; ++i) {
      tables[i] = buffers.Result<float>(i);
      const float* const before = buffers.Operand<float>(kTables + i);
      // If nothing else reads a table, XLA gives it the memory of the result.
      if (before != tables[i]) std::memcpy(tables[i], before, Shard(shape) * sizeof(float));
    }
    const float learning_rate = *buffers.Operand<float>(3);
    const std::vector<int64_t> rows(gradients.rows.begin(), gradients.rows.end());
    optimizer_.ApplyToRows(rows, gradients.sums.data(), {learning_rate}, tables);
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kTables = 4;

  const SparseUpdateCall call_;
  const RowOptimizer optimizer_;
};

class Gradients : public CustomCall {
 public:
  explicit Gradients(SparseGradientsCall call) : call_(std::move(call)) {}

  absl::Status Execute(XLA_FFI_CallFrame* frame) const override {
    const SparseCoreShape& shape = call_.shape;
    const Buffers buffers(shape, *frame);
    TF_RETURN_IF_ERROR(buffers.Check({shape.chips * shape.words(), 1, AllSamples(shape)},
                                     {shape.rows, Shard(shape), 1}));
    TF_ASSIGN_OR_RETURN(const RowGradients gradients,
                        SumGradients(shape, buffers.Ids(), buffers.Operand<float>(2)));
    const auto fill = [](const auto& values, int64_t size, auto* result) {
      std::fill(std::copy(values.begin(), values.end(), result), result + size, 0);
    };
    fill(gradients.rows, shape.rows, buffers.Result<int32_t>(0));
    fill(gradients.sums, Shard(shape), buffers.Result<float>(1));
    *buffers.Result<int32_t>(2) = static_cast<int32_t>(gradients.rows.size());
    return absl::OkStatus();
  }

 private:
  const SparseGradientsCall call_;
};

absl::Status CheckShape(const SparseCoreShape& shape) {
  const int cores = shape.cores_per_chip;
  if (shape.chips > 0 && cores > 0 && shape.rows % cores == 0 && shape.samples % cores == 0) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("Op ", shape.op, " was compiled for ", shape.rows,
                                          " rows and ", shape.samples, " samples on ", cores,
                                          " SparseCores."));
}

absl::StatusOr<std::unique_ptr<CustomCall>> MakeLookup(const CallAttributes& attributes) {
  TF_ASSIGN_OR_RETURN(SparseLookupCall call, DecodeSparseLookupCall(attributes));
  TF_RETURN_IF_ERROR(CheckShape(call.shape));
  TF_RETURN_IF_ERROR(CheckQuantization(call.shape.table, call.quantization));
  return std::make_unique<Lookup>(std::move(call));
}

absl::StatusOr<std::unique_ptr<CustomCall>> MakeUpdate(const CallAttributes& attributes) {
  TF_ASSIGN_OR_RETURN(SparseUpdateCall call, DecodeSparseUpdateCall(attributes));
  TF_RETURN_IF_ERROR(CheckShape(call.shape));
  TF_ASSIGN_OR_RETURN(RowOptimizer optimizer,
                      RowOptimizer::Create(call.optimizer, call.shape.width));
  if (optimizer.num_dynamic_inputs() > 1) {
    return absl::InternalError(absl::StrCat("Op ", call.shape.op, " has one learning rate."));
  }
  return std::make_unique<Update>(std::move(call), std::move(optimizer));
}

absl::StatusOr<std::unique_ptr<CustomCall>> MakeGradients(const CallAttributes& attributes) {
  TF_ASSIGN_OR_RETURN(SparseGradientsCall call, DecodeSparseGradientsCall(attributes));
  TF_RETURN_IF_ERROR(CheckShape(call.shape));
  return std::make_unique<Gradients>(std::move(call));
}

[[maybe_unused]] const bool kLookupRegistered = RegisterCustomCall<MakeLookup>(kSparseLookupTarget);
[[maybe_unused]] const bool kUpdateRegistered = RegisterCustomCall<MakeUpdate>(kSparseUpdateTarget);
[[maybe_unused]] const bool kGradientsRegistered =
    RegisterCustomCall<MakeGradients>(kSparseGradientsTarget);

}  // namespace
}  // namespace tf_tpu_ext
