// Keeps the machine code of compiled programs in a folder for later processes.
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

// Any number of processes may share a folder: an entry appears as a whole or not at all, and may be
// removed at any time. Thread-safe.
class CompilationCache {
 public:
  // Creates the folder if necessary. Returns an error if that fails, if no file can be written to
  // it, or if another user could put code into it.
  static absl::StatusOr<std::shared_ptr<CompilationCache>> Open(const std::string& folder);

  // The same, but does not touch the folder before the first use. If the folder turns out to be
  // unusable, the cache stays empty.
  static std::shared_ptr<CompilationCache> OpenLater(const std::string& folder);

  const std::string& folder() const { return folder_; }

  // The machine code stored for `key`. NotFound if there is none, DataLoss if the file is damaged.
  absl::StatusOr<std::string> Read(absl::string_view key) const;

  // Stores the code. If the folder then holds more than `max_bytes`, removes the least recently
  // used entries.
  absl::Status Write(absl::string_view key, absl::string_view code, int64_t max_bytes) const;

 private:
  explicit CompilationCache(std::string folder) : folder_(std::move(folder)) {}

  bool CanBeUsed() const;
  std::string PathOf(absl::string_view key) const;
  // Counts what was written, and checks the folder's size as often as the limit requires.
  void KeepBelow(int64_t max_bytes, int64_t written) const;

  const std::string folder_;
  mutable absl::Mutex mutex_;
  // Unknown until the first use if the cache was opened with OpenLater.
  mutable std::optional<bool> can_be_used_ ABSL_GUARDED_BY(mutex_);
  // How many bytes may be written before the next check. Other processes write to the folder, too.
  mutable int64_t unwatched_ ABSL_GUARDED_BY(mutex_) = 0;
};

// What machine code depends on besides the program: TensorFlow, this library, the processor.
const std::string& CompilationEnvironment();

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_BUILD_COMPILATION_CACHE_H_
