// Machine code of compiled programs, in a folder that later processes read.
#ifndef TF_TPU_EXT_CC_COMPILER_BUILD_COMPILATION_CACHE_H_
#define TF_TPU_EXT_CC_COMPILER_BUILD_COMPILATION_CACHE_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tf_tpu_ext {

// Any number of processes may share a folder: an entry appears whole or not at all. Entries are
// never removed. Thread-safe: it holds nothing but the folder's name.
class CompilationCache {
 public:
  // Makes the folder if it is new; an error if that fails, or if no file can be written to it.
  static absl::StatusOr<std::shared_ptr<CompilationCache>> Open(const std::string& folder);

  const std::string& folder() const { return folder_; }

  // The machine code kept for `key`; NotFound if there is none, DataLoss if the file is damaged.
  absl::StatusOr<std::string> Read(absl::string_view key) const;

  absl::Status Write(absl::string_view key, absl::string_view code) const;

 private:
  explicit CompilationCache(std::string folder) : folder_(std::move(folder)) {}

  std::string PathOf(absl::string_view key) const;

  const std::string folder_;
};

// What machine code depends on besides its program: TensorFlow, this library, the processor.
const std::string& CompilationEnvironment();

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_BUILD_COMPILATION_CACHE_H_
