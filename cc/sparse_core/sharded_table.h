// What a chip's SparseCores do with their rows of a table, for the ids of all chips.
//
// Row `row` of SparseCore `core` of a chip is row `core * (rows / cores_per_chip) + row` of the
// chip's part of the table. Samples of SparseCores are numbered in the same way among the chip's
// samples.
#ifndef TF_TPU_EXT_CC_SPARSE_CORE_SHARDED_TABLE_H_
#define TF_TPU_EXT_CC_SPARSE_CORE_SHARDED_TABLE_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cc/program/sparse_core_call.h"

namespace tf_tpu_ext {

// The ids of all chips whose rows are on this chip.
class ShardIds {
 public:
  // `packed` contains the words of all chips, and must outlive the object.
  ShardIds(const SparseCoreShape& shape, absl::Span<const int32_t> packed, int32_t chip)
      : shape_(shape), packed_(packed), chip_(chip) {}

  // Calls `visit` with the row in the chip's part of the table, the sample among those of all
  // chips, and the gain. Returns an error if the ids are damaged.
  absl::Status ForEach(
      absl::FunctionRef<void(int64_t row, int64_t sample, float gain)> visit) const;

 private:
  const SparseCoreShape& shape_;
  const absl::Span<const int32_t> packed_;
  const int32_t chip_;
};

// Adds the rows, multiplied by their gains, to the activations of their samples. `quantize` is
// applied to values read from the table, unless it is null.
using QuantizeFn = absl::FunctionRef<float(float)>;
absl::Status AddRows(const SparseCoreShape& shape, const ShardIds& ids, const float* table,
                     const QuantizeFn* quantize, float* activations);

// The rows that have gradients, in order of first occurrence, and the sum of each row's gradients.
struct RowGradients {
  std::vector<int32_t> rows;
  std::vector<float> sums;
};
absl::StatusOr<RowGradients> SumGradients(const SparseCoreShape& shape, const ShardIds& ids,
                                          const float* gradients);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_SPARSE_CORE_SHARDED_TABLE_H_
