// Divides the rows of a table into minibatches. The rows are in 2^levels buckets. The splits
// between buckets form a binary tree, and a set of splits is a number: bit 0 is the split in the
// middle, bits 1 and 2 are those in the middle of the two halves, and so on.
#ifndef TF_TPU_EXT_CC_SPARSE_CORE_MINIBATCH_SPLITS_H_
#define TF_TPU_EXT_CC_SPARSE_CORE_MINIBATCH_SPLITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cc/sparse_core/coo.h"
#include "cc/sparse_core/sorted_ids.h"

namespace tf_tpu_ext {

// The highest level whose splits fit in the bits of a number.
inline constexpr int kMaxDivisionLevel = 6;

// The buckets before which there is a split, in ascending order.
absl::StatusOr<std::vector<int>> ToBuckets(int64_t splits, int levels);

int64_t ToSplits(absl::Span<const int> buckets, int levels);

// How many ids of another SparseCore's samples a SparseCore takes in a minibatch.
struct MinibatchLimits {
  int64_t ids = 0;
  int64_t unique_ids = 0;
};

// TensorFlow asks for them by the name of a compiled program, which a TPU looks up in a profile of
// earlier runs. There are no such profiles here, so these are TPUEmbeddingV2's own defaults.
inline constexpr MinibatchLimits kDefaultMinibatchLimits = {256, 256};

struct MinibatchPlan {
  // Sorted by the sample's SparseCore, the row's SparseCore, bucket, and id.
  Coo ids;
  // Where the ids of each bucket begin, in this order, followed by the end of the last bucket.
  std::vector<int32_t> starts;
  int64_t splits = 0;
  // The maximum number of ids that a SparseCore takes of another one's samples, in all minibatches.
  int32_t max_ids = 0;
  int32_t max_unique_ids = 0;
};

struct MinibatchOptions {
  int64_t num_samples = 1;
  int64_t num_rows = 1;
  int64_t cores_per_chip = 1;
  int64_t num_cores = 1;
  int levels = kMaxDivisionLevel;
  MinibatchLimits limits = kDefaultMinibatchLimits;
  std::string table;
};

// The ids must be sorted by sample.
absl::StatusOr<MinibatchPlan> PlanMinibatches(const CooView& ids, const MinibatchOptions& options);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_SPARSE_CORE_MINIBATCH_SPLITS_H_
