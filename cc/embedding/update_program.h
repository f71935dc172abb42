// An optimizer of embeddings that the user wrote as a program of HLO.
#ifndef TF_TPU_EXT_CC_EMBEDDING_UPDATE_PROGRAM_H_
#define TF_TPU_EXT_CC_EMBEDDING_UPDATE_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace xla {
class HloModule;
class HloModuleProto;
class Literal;
}  // namespace xla

namespace tf_tpu_ext {

// The program takes the gradient, the parameters, the slots and optionally the learning rate, each
// as one value, and returns the new parameters and slots. It is evaluated for many values at once.
class UpdateProgram {
 public:
  // Makes the update of up to `width` values. Returns InvalidArgument if the program isn't
  // elementwise, or has other arguments or results.
  static absl::StatusOr<std::shared_ptr<const UpdateProgram>> Create(
      const xla::HloModuleProto& program, int64_t width);

  // Returns InvalidArgument if a table has another number of slots than the program.
  absl::Status CheckSlots(size_t num_slots) const;

  ~UpdateProgram();

  // How many values can be updated at once.
  int64_t width() const { return width_; }

  // Updates parameters and slots in place, as many values as there are gradients.
  void Apply(absl::Span<const float> gradient, float learning_rate, float* parameters,
             absl::Span<float* const> slots) const;

 private:
  UpdateProgram(std::unique_ptr<const xla::HloModule> row_program, int64_t width, int64_t num_slots,
                bool takes_rate);

  // The values, with zeros up to the width.
  xla::Literal Padded(absl::Span<const float> values) const;

  absl::StatusOr<xla::Literal> Evaluate(absl::Span<const float> gradient, float learning_rate,
                                        const float* parameters,
                                        absl::Span<float* const> slots) const;

  // The program on a row of values instead of a single one.
  const std::unique_ptr<const xla::HloModule> row_program_;
  const int64_t width_;
  const int64_t num_slots_;
  const bool takes_rate_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_EMBEDDING_UPDATE_PROGRAM_H_
