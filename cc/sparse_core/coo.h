// A feature's ids as coordinates. Each id has a sample, a row of the table, and a gain by which the
// row is multiplied before the sample's rows are summed.
#ifndef TF_TPU_EXT_CC_SPARSE_CORE_COO_H_
#define TF_TPU_EXT_CC_SPARSE_CORE_COO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tf_tpu_ext {

struct Coo {
  std::vector<int32_t> samples;
  std::vector<int32_t> ids;
  std::vector<float> gains;

  size_t size() const { return ids.size(); }
  void Add(int32_t sample, int32_t id, float gain) {
    samples.push_back(sample);
    ids.push_back(id);
    gains.push_back(gain);
  }
};

enum class Combiner {
  kSum,
  kMean,
  kSqrtN,
};

// As on a TPU, "custom" combiners get the same sums as "sqrtn".
absl::StatusOr<Combiner> ParseCombiner(absl::string_view name);

// A feature's ids, as passed to the ops.
struct FeatureIds {
  enum class Kind { kDense, kSparse, kRagged };
  Kind kind = Kind::kDense;
  // The row splits of a ragged feature, or `index_size` numbers for each id of a sparse feature.
  absl::Span<const int32_t> indices;
  int64_t index_size = 0;
  absl::Span<const int32_t> ids;
  // One for each id, or one for all.
  absl::Span<const float> weights;
};

// The ids, with gains that turn a sum into what the combiner asks for. Equal ids that are adjacent
// in a sample are merged, and their gains added.
absl::StatusOr<Coo> ToCoo(const FeatureIds& feature, int64_t num_samples, Combiner combiner);

// The position of a feature's samples and rows within its stacked table.
struct StackPlace {
  // The number of samples of the feature, and of all stacked features.
  int64_t num_samples = 0;
  int64_t stacked_samples = 0;
  int64_t sample_offset = 0;
  int64_t row_offset = 0;
  // The number of SparseCores by which the table's rows are rotated.
  int64_t rotation = 0;
  // The number of SparseCores of a chip, and of all chips, which is a power of two.
  int64_t cores_per_chip = 1;
  int64_t all_cores = 1;
};

absl::Status CheckStackPlace(const StackPlace& place);

// The ids for each SparseCore of the chip, with their positions in the stack.
absl::StatusOr<std::vector<Coo>> SplitByCore(const Coo& coo, const StackPlace& place);

bool IsPowerOfTwo(int64_t value);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_SPARSE_CORE_COO_H_
