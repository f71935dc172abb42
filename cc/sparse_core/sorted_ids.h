// The ids of one SparseCore's samples, sorted by the SparseCore that has their rows.
#ifndef TF_TPU_EXT_CC_SPARSE_CORE_SORTED_IDS_H_
#define TF_TPU_EXT_CC_SPARSE_CORE_SORTED_IDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cc/sparse_core/coo.h"

namespace tf_tpu_ext {

// Ids that others own.
struct CooView {
  absl::Span<const int32_t> samples;
  absl::Span<const int32_t> ids;
  absl::Span<const float> gains;

  size_t size() const { return ids.size(); }
};

// InvalidArgument unless the three are equally long.
absl::Status CheckLengths(const CooView& view);

// An id of a table, once for each sample that has it: `gain` is the sum of its gains there.
struct UniqueId {
  int32_t sample;
  int32_t id;
  float gain;
  // Whether the one before it is another id.
  bool first_of_id;
};

// The ids in ascending order, those of an id in the order of the input. Equal samples that then
// follow each other are one.
std::vector<UniqueId> SortAndMerge(const CooView& view);

struct SortedIds {
  // By SparseCore, then by id; an id is the number of its row on that SparseCore.
  Coo ids;
  // Where the ids of each SparseCore begin, and the end of the last one's.
  std::vector<int32_t> starts;
  // The most that one SparseCore has.
  int32_t max_ids = 0;
  int32_t max_unique_ids = 0;
};

struct SortOptions {
  // Of all chips, a power of two: row `id` is on SparseCore `id % num_cores`.
  int64_t num_cores = 1;
  // Rows of the stacked table.
  int64_t num_rows = 0;
  // Of one SparseCore; samples are numbered modulo that.
  int64_t num_samples = 1;
  // Of one SparseCore, or 0 if there is no limit. `table` names the table in the error.
  int64_t max_ids = 0;
  int64_t max_unique_ids = 0;
  std::string table;
};

// `features` in the order of the tables that they look up. Those of a table must be one.
absl::StatusOr<SortedIds> SortByCore(const std::vector<Coo>& features, const SortOptions& options);

// One for each table that has features, in the order of `row_offsets`, the first rows of their
// tables in the stack.
std::vector<Coo> MergeFeatures(const std::vector<CooView>& features,
                               absl::Span<const int32_t> row_offsets);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_SPARSE_CORE_SORTED_IDS_H_
