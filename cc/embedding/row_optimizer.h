// The update of one row of an embedding table by the optimizers of TPU embedding.
#ifndef TF_TPU_EXT_CC_EMBEDDING_ROW_OPTIMIZER_H_
#define TF_TPU_EXT_CC_EMBEDDING_ROW_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cc/embedding/update_program.h"
#include "tensorflow/core/protobuf/tpu/optimization_parameters.pb.h"

namespace tf_tpu_ext {

class RowOptimizer {
 public:
  // Makes the optimizer of rows with `width` values. Returns Unimplemented for an algorithm that is
  // not supported; the message names those that are.
  static absl::StatusOr<RowOptimizer> Create(
      const tensorflow::tpu::OptimizationParameters& parameters, int64_t width);

  // The names of the slots, which hold what the algorithm keeps for each parameter besides its
  // value, in the order of the ops that load and retrieve them.
  const std::vector<std::string>& slots() const { return slots_; }

  // Whether the gradients of a row are summed over all cores before a single update. If not, the
  // gradients of each core make an update of their own.
  bool accumulates() const { return accumulates_; }

  // Whether rows that the step did not look up are updated too, with a gradient of zero.
  bool updates_all_rows() const { return updates_all_rows_; }

  // The minimum number of dynamic inputs (learning rates, step counters) that Apply needs.
  int num_dynamic_inputs() const;

  // Updates distinct rows of tables in place: of the parameters, and then of the slots. There is a
  // row of gradients for each.
  void ApplyToRows(absl::Span<const int64_t> rows, const float* gradients,
                   absl::Span<const float> dynamic_inputs, absl::Span<float* const> tables) const;

  // Updates a row's parameters and slots in place.
  void Apply(absl::Span<const float> gradient, absl::Span<const float> dynamic_inputs,
             float* parameters, absl::Span<float* const> slots) const;

 private:
  RowOptimizer(const tensorflow::tpu::OptimizationParameters& parameters, int64_t width)
      : parameters_(parameters), width_(width) {}

  // ApplyToRows with a program, which is evaluated for several rows at once.
  void ApplyProgramToRows(absl::Span<const int64_t> rows, const float* gradients,
                          absl::Span<const float> dynamic_inputs,
                          absl::Span<float* const> tables) const;

  // The tags of the dynamic inputs that it uses.
  std::vector<int> DynamicInputs() const;

  void ApplyAlgorithm(absl::Span<const float> gradient, float learning_rate,
                      absl::Span<const float> dynamic_inputs, float* parameters,
                      absl::Span<float* const> slots) const;

  tensorflow::tpu::OptimizationParameters parameters_;
  int64_t width_;
  // Of a user-defined program.
  std::shared_ptr<const UpdateProgram> program_;
  std::vector<std::string> slots_;
  bool accumulates_ = true;
  bool updates_all_rows_ = false;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_EMBEDDING_ROW_OPTIMIZER_H_
