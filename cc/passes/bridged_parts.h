// What the bridge has made of parts of sessions' graphs, kept for sessions whose graphs grow.
#ifndef TF_TPU_EXT_CC_PASSES_BRIDGED_PARTS_H_
#define TF_TPU_EXT_CC_PASSES_BRIDGED_PARTS_H_

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "tensorflow/core/framework/graph.pb.h"

namespace tf_tpu_ext {

// Keeps the most recently used parts, up to a number of bytes. Thread-safe.
class BridgedParts {
 public:
  using Made = std::shared_ptr<const tensorflow::GraphDef>;

  explicit BridgedParts(size_t most_bytes) : most_bytes_(most_bytes) {}

  // Returns null if nothing is kept for the key.
  Made Find(const std::string& key);
  void Keep(const std::string& key, Made made);

 private:
  using Entry = std::pair<std::string, Made>;

  void DropLast() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t most_bytes_;
  absl::Mutex mutex_;
  // The most recently used first.
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::list<Entry>::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_BRIDGED_PARTS_H_
