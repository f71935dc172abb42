// The embedding engine that the TPU system is configured with.
#ifndef TF_TPU_EXT_CC_EMBEDDING_CURRENT_EMBEDDING_H_
#define TF_TPU_EXT_CC_EMBEDDING_CURRENT_EMBEDDING_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "cc/embedding/engine.h"

namespace tf_tpu_ext {

class ComputePool;

// Thread-safe. Whoever has the engine keeps it, even if it is dropped in the meantime.
class EmbeddingSlot {
 public:
  // `compute_pool`, which must stay alive, does the engines' work.
  explicit EmbeddingSlot(ComputePool* compute_pool) : compute_pool_(*compute_pool) {}

  // Null before Configure.
  std::shared_ptr<EmbeddingEngine> engine() const;

  // Returns FailedPrecondition if there is none; `op` names the op that asks.
  absl::StatusOr<std::shared_ptr<EmbeddingEngine>> Require(absl::string_view op) const;

  // `config` is a serialized TPUEmbeddingConfiguration. A second configuration needs a new TPU
  // system.
  absl::Status Configure(const std::string& config);

  // Whether Configure was called with `config`; with any configuration, if `config` is empty.
  bool IsConfigured(const std::string& config) const;

  // Called when the TPU system is initialized again or shuts down: its tables are gone.
  void Drop();

 private:
  ComputePool& compute_pool_;
  mutable absl::Mutex mutex_;
  // Both empty, or both set.
  std::string config_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<EmbeddingEngine> engine_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_EMBEDDING_CURRENT_EMBEDDING_H_
