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

// Ids owned by others.
struct CooView {
  absl::Span<const int32_t> samples;
  absl::Span<const int32_t> ids;
  absl::Span<const float> gains;

  size_t size() const { return ids.size(); }
};

// InvalidArgument unless all three have the same length.
absl::Status CheckLengths(const CooView& view);

// An id of a table, once for each sample that has it. `gain` is the sum of the id's gains in the
// sample.
struct UniqueId {
  int32_t sample;
  int32_t id;
  float gain;
  // Whether the previous element is another id.
  bool first_of_id;
};

// The ids in ascending order, with equal ids in the order of the input. If adjacent elements then
// have the same id and sample, they are merged.
std::vector<UniqueId> SortAndMerge(const CooView& view);

struct SortedIds {
  // Sorted by SparseCore, then by id. An id is the number of its row on that SparseCore.
  Coo ids;
  // Where the ids of each SparseCore begin, followed by the end of the last one's.
  std::vector<int32_t> starts;
  // The maximum of any SparseCore.
  int32_t max_ids = 0;
  int32_t max_unique_ids = 0;
};

struct SortOptions {
  // The number of SparseCores of all chips, a power of two. Row `id` is on SparseCore `id %
  // num_cores`.
  int64_t num_cores = 1;
  // The number of rows of the stacked table.
  int64_t num_rows = 0;
  // The number of samples of one SparseCore, modulo which samples are numbered.
  int64_t num_samples = 1;
  // The limits for one SparseCore, or 0 if there are none. `table` names the table in errors.
  int64_t max_ids = 0;
  int64_t max_unique_ids = 0;
  std::string table;
};

// `features` are in the order of the tables that they look up. There must be only one for each
// table.
absl::StatusOr<SortedIds> SortByCore(const std::vector<Coo>& features, const SortOptions& options);

// Merges the features of each table. The results are sorted by `row_offsets`, which are the first
// rows of the features' tables in the stack.
std::vector<Coo> MergeFeatures(const std::vector<CooView>& features,
                               absl::Span<const int32_t> row_offsets);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_SPARSE_CORE_SORTED_IDS_H_
