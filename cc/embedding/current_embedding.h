// The embedding engine that the TPU system is configured with.
#ifndef TF_TPU_EXT_CC_EMBEDDING_CURRENT_EMBEDDING_H_
#define TF_TPU_EXT_CC_EMBEDDING_CURRENT_EMBEDDING_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cc/embedding/engine.h"

namespace tf_tpu_ext {

// Null before ConfigureEmbedding.
std::shared_ptr<EmbeddingEngine> CurrentEmbedding();

// FailedPrecondition if there is none; `op` names who asks.
absl::StatusOr<std::shared_ptr<EmbeddingEngine>> RequireEmbedding(absl::string_view op);

// `config` is a serialized TPUEmbeddingConfiguration. A second one needs a new TPU system.
absl::Status ConfigureEmbedding(const std::string& config);

// Whether ConfigureEmbedding was called with `config`, or with any if that is empty.
bool IsEmbeddingConfigured(const std::string& config);

// The TPU system starts anew or ends: its tables are gone.
void DropEmbedding();

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_EMBEDDING_CURRENT_EMBEDDING_H_
