// The buffers that a chip's SparseCores use to look up rows. Ids are sorted by the sample's
// SparseCore, then by minibatch, and then by the row's SparseCore. `row_pointers` contains the ends
// of these parts. Each part begins at a multiple of eight, and so do the pointers of each
// minibatch.
#ifndef TF_TPU_EXT_CC_SPARSE_CORE_CSR_H_
#define TF_TPU_EXT_CC_SPARSE_CORE_CSR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cc/sparse_core/sorted_ids.h"

namespace tf_tpu_ext {

int64_t RoundUpToPadding(int64_t value);

// The ids of one SparseCore's samples. The part for a SparseCore and bucket begins at `starts[core
// * buckets + bucket]`. Without minibatches, `buckets` is 1.
struct CoreIds {
  CooView ids;
  absl::Span<const int32_t> starts;
};

struct CsrOptions {
  // The number of SparseCores of all chips.
  int64_t num_cores = 1;
  // The number of buckets in `starts`, and the buckets before which a minibatch begins.
  int buckets = 1;
  std::vector<int> splits;
  // The capacity of the buffers.
  int64_t max_minibatches = 1;
  int64_t max_ids = 0;
  bool allow_id_dropping = false;
  std::string table;
};

// Where the ids are written.
struct CsrBuffers {
  absl::Span<int32_t> row_pointers;
  absl::Span<int32_t> samples;
  absl::Span<int32_t> rows;
  absl::Span<float> gains;
};

// How much of the buffers is in use.
struct CsrSizes {
  int64_t row_pointers = 0;
  int64_t ids = 0;
  int64_t minibatches = 1;
  // The number of ids for which there was no room.
  int64_t dropped = 0;
};

int64_t RowPointersOf(const CsrOptions& options, int64_t cores_per_chip);

// Fills the buffers, with padding where there is no id.
absl::StatusOr<CsrSizes> PackCsr(absl::Span<const CoreIds> cores, const CsrOptions& options,
                                 const CsrBuffers& buffers);

// The same buffers, as read by a lookup.
struct CsrView {
  absl::Span<const int32_t> row_pointers;
  absl::Span<const int32_t> samples;
  absl::Span<const int32_t> rows;
  absl::Span<const float> gains;
  int64_t minibatches = 1;
};

struct CsrShape {
  int64_t cores_per_chip = 1;
  // The number of SparseCores of all chips.
  int64_t num_cores = 1;
  // Numbers for one SparseCore.
  int64_t num_samples = 1;
  int64_t num_rows = 1;
  // The limit for one part, or 0 if there is none.
  int64_t max_ids = 0;
};

struct CsrId {
  // The SparseCore of this chip that has the sample, and the SparseCore among those of all chips
  // that has the row.
  int64_t core_of_sample;
  int64_t core_of_row;
  int64_t sample;
  int64_t row;
  float gain;
};

// Calls `visit` for the ids whose rows are on SparseCores `first` to `last`, excluding `last`.
// Returns an error if the buffers are damaged.
absl::Status ForEachId(const CsrView& csr, const CsrShape& shape, int64_t first, int64_t last,
                       absl::FunctionRef<void(const CsrId&)> visit);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_SPARSE_CORE_CSR_H_
