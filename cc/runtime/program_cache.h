// Compiled programs, kept until they are dropped.
#ifndef TF_TPU_EXT_CC_RUNTIME_PROGRAM_CACHE_H_
#define TF_TPU_EXT_CC_RUNTIME_PROGRAM_CACHE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cc/program/compilation_record.h"

namespace tf_tpu_ext {

class Program;

// Thread-safe.
class ProgramCache {
 public:
  // Compiles the program `id` and fills in the record.
  using Compile = std::function<absl::StatusOr<std::shared_ptr<Program>>(
      int64_t id, CompilationRecord* record)>;

  // Returns the program for `key`, which names all that it depends on, compiling it if it is new.
  // Callers that ask for the same new key at once wait for one compilation; a failed one is tried
  // again at the next call.
  absl::StatusOr<std::shared_ptr<Program>> GetOrCompile(const std::string& key,
                                                        const Compile& compile);

  // Gives up the program for `key`, which nobody will ask for again. Its record stays.
  void Drop(const std::string& key);

  // The program that a launch names, or NotFound.
  absl::StatusOr<std::shared_ptr<Program>> Find(int64_t id) const;

  std::vector<CompilationRecord> Records() const;

 private:
  struct Entry {
    // Held while the program is compiled.
    absl::Mutex compiling;
    std::shared_ptr<Program> program;
    CompilationRecord record;
  };

  mutable absl::Mutex mutex_;
  int64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<std::string, std::shared_ptr<Entry>> by_key_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<int64_t, std::shared_ptr<Program>> by_id_ ABSL_GUARDED_BY(mutex_);
  std::vector<CompilationRecord> failures_ ABSL_GUARDED_BY(mutex_);
  // Entries in order of their first compilation.
  std::vector<std::shared_ptr<Entry>> order_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_PROGRAM_CACHE_H_
