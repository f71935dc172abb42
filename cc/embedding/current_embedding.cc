#include "cc/embedding/current_embedding.h"

#include <utility>

#include "absl/base/const_init.h"
#include "absl/base/no_destructor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "cc/base/compute_pool.h"
#include "cc/base/process.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

struct Configured {
  std::string config;
  std::shared_ptr<EmbeddingEngine> engine;
};

absl::Mutex mutex(absl::kConstInit);

Configured& Current() {
  static absl::NoDestructor<Configured> current;
  return *current;
}

}  // namespace

std::shared_ptr<EmbeddingEngine> CurrentEmbedding() {
  absl::MutexLock lock(&mutex);
  return Current().engine;
}

absl::StatusOr<std::shared_ptr<EmbeddingEngine>> RequireEmbedding(absl::string_view op) {
  if (auto engine = CurrentEmbedding()) return engine;
  return absl::FailedPreconditionError(absl::StrCat(
      "Op ", op,
      " needs the TPU's embedding tables, which are not configured, or no longer: a new "
      "TPU system has none. Build the TPUEmbedding object after initializing the TPU system, or "
      "give tpu.initialize_system an embedding_config."));
}

absl::Status ConfigureEmbedding(const std::string& config) {
  tensorflow::tpu::TPUEmbeddingConfiguration parsed;
  if (config.empty() || !parsed.ParseFromString(config)) {
    return absl::InvalidArgumentError(
        "The config of a TPU embedding is empty or no serialized TPUEmbeddingConfiguration.");
  }
  TF_ASSIGN_OR_RETURN(std::shared_ptr<EmbeddingEngine> engine,
                      EmbeddingEngine::Create(parsed, [](std::function<void()> work) {
                        Process::Get().compute_pool->Schedule(std::move(work));
                      }));
  absl::MutexLock lock(&mutex);
  if (Current().engine != nullptr) {
    return absl::FailedPreconditionError(
        "The TPU is already configured for embeddings. Initialize the TPU system again before "
        "another configuration; that drops the tables.");
  }
  Current() = {config, std::move(engine)};
  return absl::OkStatus();
}

bool IsEmbeddingConfigured(const std::string& config) {
  absl::MutexLock lock(&mutex);
  return Current().engine != nullptr && (config.empty() || config == Current().config);
}

void DropEmbedding() {
  Configured dropped;
  {
    absl::MutexLock lock(&mutex);
    std::swap(dropped, Current());
  }
  // Not under the lock: those whose waits end may ask for the embedding again.
  if (dropped.engine != nullptr) {
    dropped.engine->Reset(
        absl::AbortedError("The TPU system has been initialized anew or shut "
                           "down; its embedding tables are gone."));
  }
}

}  // namespace tf_tpu_ext
