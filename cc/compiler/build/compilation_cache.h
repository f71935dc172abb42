// Machine code of compiled programs, in a folder that later processes read.
#ifndef TF_TPU_EXT_CC_COMPILER_BUILD_COMPILATION_CACHE_H_
#define TF_TPU_EXT_CC_COMPILER_BUILD_COMPILATION_CACHE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace tf_tpu_ext {

// Any number of processes may share a folder: an entry appears whole or not at all, and may be
// removed at any time. Thread-safe.
class CompilationCache {
 public:
  // Makes the folder if it is new; an error if that fails, if no file can be written to it, or if
  // others could put code into it.
  static absl::StatusOr<std::shared_ptr<CompilationCache>> Open(const std::string& folder);

  // The same, but looks at the folder when it is first used. If it can't be used then, the cache
  // stays empty.
  static std::shared_ptr<CompilationCache> OpenLater(const std::string& folder);

  const std::string& folder() const { return folder_; }

  // The machine code kept for `key`; NotFound if there is none, DataLoss if the file is damaged.
  absl::StatusOr<std::string> Read(absl::string_view key) const;

  // Keeps the code. If the folder then holds more than `max_bytes`, the least recently used entries
  // are removed.
  absl::Status Write(absl::string_view key, absl::string_view code, int64_t max_bytes) const;

 private:
  explicit CompilationCache(std::string folder) : folder_(std::move(folder)) {}

  bool CanBeUsed() const;
  std::string PathOf(absl::string_view key) const;
  // Counts what was written, and looks at the folder as often as the limit needs.
  void KeepBelow(int64_t max_bytes, int64_t written) const;

  const std::string folder_;
  mutable absl::Mutex mutex_;
  // Absent until the folder is first used, if it was opened for later.
  mutable std::optional<bool> can_be_used_ ABSL_GUARDED_BY(mutex_);
  // Bytes that may be written before the folder is looked at again. Others write to it, too.
  mutable int64_t unwatched_ ABSL_GUARDED_BY(mutex_) = 0;
};

// What machine code depends on besides its program: TensorFlow, this library, the processor.
const std::string& CompilationEnvironment();

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_BUILD_COMPILATION_CACHE_H_
