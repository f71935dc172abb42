// One core's lookups in one step, as requested by EnqueueTPUEmbedding*.
#ifndef TF_TPU_EXT_CC_EMBEDDING_BATCH_H_
#define TF_TPU_EXT_CC_EMBEDDING_BATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cc/embedding/layout.h"

namespace tf_tpu_ext {

struct EmbeddingBatch {
  // The lookups of one output: value k adds gains[k] times row ids[k] of the table to row rows[k]
  // of the output.
  struct Lookups {
    std::vector<int64_t> rows;
    std::vector<int64_t> ids;
    std::vector<float> gains;
  };

  bool training = false;
  std::vector<Lookups> outputs;
};

// What a program provides for one feature.
struct FeatureValues {
  enum class Kind { kDense, kSparse, kRagged };

  Kind kind = Kind::kDense;
  // kSparse: `rank` numbers for each id, the last of which is the position in the sample; or, if
  // the rank is one, the row of the output. kRagged: row splits.
  std::vector<int64_t> indices;
  int rank = 0;
  std::vector<int64_t> ids;
  // One for each id; all ones if empty.
  std::vector<float> weights;
};

// One feature for each output. There is one combiner ("sum", "mean" or "sqrtn") for each table; if
// `combiners` is empty, all are sums.
absl::StatusOr<EmbeddingBatch> BatchOfOutputs(const EmbeddingLayout& layout,
                                              absl::Span<const FeatureValues> features,
                                              absl::Span<const std::string> combiners);

// Features with their tables, `table_ids` in ascending order: in a layout without features, those
// of one table share its output. A feature with a maximum sequence length gets a row for each
// position.
absl::StatusOr<EmbeddingBatch> BatchOfTableFeatures(const EmbeddingLayout& layout,
                                                    absl::Span<const FeatureValues> features,
                                                    absl::Span<const int> table_ids,
                                                    absl::Span<const int> max_sequence_lengths,
                                                    absl::Span<const std::string> combiners);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_EMBEDDING_BATCH_H_
