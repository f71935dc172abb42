// One core's lookups of one step, as programs ask for them by EnqueueTPUEmbedding*.
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
  // Of one output: value k adds gains[k] times row ids[k] of the table to row rows[k] of the
  // output.
  struct Lookups {
    std::vector<int64_t> rows;
    std::vector<int64_t> ids;
    std::vector<float> gains;
  };

  bool training = false;
  std::vector<Lookups> outputs;
};

// What a program gives for one feature.
struct FeatureValues {
  enum class Kind { kDense, kSparse, kRagged };

  Kind kind = Kind::kDense;
  // kSparse: `rank` numbers for each id, of which the last one is the position in the sample; or,
  // with a rank of one, the row of the output. kRagged: row splits.
  std::vector<int64_t> indices;
  int rank = 0;
  std::vector<int64_t> ids;
  // By id; all ones if empty.
  std::vector<float> weights;
};

// One feature for each output. `combiners` are by table ("sum", "mean" or "sqrtn"); all are sums if
// there are none.
absl::StatusOr<EmbeddingBatch> BatchOfOutputs(const EmbeddingLayout& layout,
                                              absl::Span<const FeatureValues> features,
                                              absl::Span<const std::string> combiners);

// Features of tables, `table_ids` in ascending order: those of one table share its output in a
// layout without features. A feature with a maximum sequence length gets a row for each position.
absl::StatusOr<EmbeddingBatch> BatchOfTableFeatures(const EmbeddingLayout& layout,
                                                    absl::Span<const FeatureValues> features,
                                                    absl::Span<const int> table_ids,
                                                    absl::Span<const int> max_sequence_lengths,
                                                    absl::Span<const std::string> combiners);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_EMBEDDING_BATCH_H_
