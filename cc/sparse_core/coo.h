// Ids of a feature as coordinates: for each the sample, the row of the table, and the gain that the
// row is multiplied by before the sample's rows are added up.
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

// "custom" combiners get the sums that "sqrtn" makes, as on a TPU.
absl::StatusOr<Combiner> ParseCombiner(absl::string_view name);

// A feature's ids as the ops have them.
struct FeatureIds {
  enum class Kind { kDense, kSparse, kRagged };
  Kind kind = Kind::kDense;
  // The row splits of a ragged feature, or `index_size` numbers for each id of a sparse one.
  absl::Span<const int32_t> indices;
  int64_t index_size = 0;
  absl::Span<const int32_t> ids;
  // One for each id, or one for all.
  absl::Span<const float> weights;
};

// The ids with gains that make a sum of what the combiner asks for. Equal ids that follow each
// other in a sample are one, with the sum of their gains.
absl::StatusOr<Coo> ToCoo(const FeatureIds& feature, int64_t num_samples, Combiner combiner);

// Where the samples and rows of a feature are in what its table is stacked in.
struct StackPlace {
  // Of the feature, and of all that are stacked.
  int64_t num_samples = 0;
  int64_t stacked_samples = 0;
  int64_t sample_offset = 0;
  int64_t row_offset = 0;
  // By how many SparseCores the rows of the table are rotated.
  int64_t rotation = 0;
  // SparseCores of a chip, and of all chips, a power of two.
  int64_t cores_per_chip = 1;
  int64_t all_cores = 1;
};

absl::Status CheckStackPlace(const StackPlace& place);

// Those of each SparseCore of the chip, at their places in the stack.
absl::StatusOr<std::vector<Coo>> SplitByCore(const Coo& coo, const StackPlace& place);

bool IsPowerOfTwo(int64_t value);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_SPARSE_CORE_COO_H_
