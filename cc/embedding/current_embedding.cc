#include "cc/embedding/current_embedding.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/base/compute_pool.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {

std::shared_ptr<EmbeddingEngine> EmbeddingSlot::engine() const {
  absl::MutexLock lock(&mutex_);
  return engine_;
}

absl::StatusOr<std::shared_ptr<EmbeddingEngine>> EmbeddingSlot::Require(
    absl::string_view op) const {
  if (auto current = engine()) return current;
  return absl::FailedPreconditionError(absl::StrCat(
      "Op ", op,
      " needs the TPU's embedding tables, which are not configured, or no longer: a new "
      "TPU system has none. Build the TPUEmbedding object after initializing the TPU system, or "
      "give tpu.initialize_system an embedding_config."));
}

absl::Status EmbeddingSlot::Configure(const std::string& config) {
  tensorflow::tpu::TPUEmbeddingConfiguration parsed;
  if (config.empty() || !parsed.ParseFromString(config)) {
    return absl::InvalidArgumentError(
        "The config of a TPU embedding is empty or no serialized TPUEmbeddingConfiguration.");
  }
  TF_ASSIGN_OR_RETURN(
      std::shared_ptr<EmbeddingEngine> engine,
      EmbeddingEngine::Create(parsed, [pool = &compute_pool_](std::function<void()> work) {
        pool->Schedule(std::move(work));
      }));
  absl::MutexLock lock(&mutex_);
  if (engine_ != nullptr) {
    return absl::FailedPreconditionError(
        "The TPU is already configured for embeddings. Initialize the TPU system again before "
        "another configuration; that drops the tables.");
  }
  config_ = config;
  engine_ = std::move(engine);
  return absl::OkStatus();
}

bool EmbeddingSlot::IsConfigured(const std::string& config) const {
  absl::MutexLock lock(&mutex_);
  return engine_ != nullptr && (config.empty() || config == config_);
}

void EmbeddingSlot::Drop() {
  std::shared_ptr<EmbeddingEngine> dropped;
  {
    absl::MutexLock lock(&mutex_);
    config_.clear();
    dropped = std::move(engine_);
    engine_ = nullptr;
  }
  // Without the lock: those whose waits end may ask for the embedding again.
  if (dropped != nullptr) {
    dropped->Reset(
        absl::AbortedError("The TPU system has been initialized anew or shut "
                           "down; its embedding tables are gone."));
  }
}

}  // namespace tf_tpu_ext
