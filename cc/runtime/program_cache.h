// A cache of the most recently used compiled programs.
#ifndef TF_TPU_EXT_CC_RUNTIME_PROGRAM_CACHE_H_
#define TF_TPU_EXT_CC_RUNTIME_PROGRAM_CACHE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cc/base/machine.h"
#include "cc/program/compilation_record.h"

namespace tf_tpu_ext {

class Program;

// Thread-safe.
//
// If there are more programs than the limits allow, the least recently used ones are removed. A
// program lives as long as somebody holds it, and until then Find returns it.
class ProgramCache {
 public:
  // How many compilations are remembered.
  static constexpr size_t kMaxRecords = 10'000;

  // Compiles the program `id` and fills in the record.
  using Compile = std::function<absl::StatusOr<std::shared_ptr<Program>>(
      int64_t id, CompilationRecord* record)>;

  // Calls `limits` whenever a program has been compiled.
  explicit ProgramCache(std::function<ProgramLimits()> limits) : limits_(std::move(limits)) {}

  // Returns the program for `key`, which identifies everything that the program depends on.
  // Compiles it if necessary. Concurrent callers with the same key wait for one compilation. A
  // failed compilation is retried on the next call.
  absl::StatusOr<std::shared_ptr<Program>> GetOrCompile(const std::string& key,
                                                        const Compile& compile);

  // Removes the program for `key`, for which nobody will ask again. Its record stays.
  void Drop(const std::string& key);

  // Adds the names of a program's arguments, in order, to its record.
  void NameArguments(int64_t id, const std::vector<ArgumentName>& names);

  // The program that a launch refers to, or NotFound.
  absl::StatusOr<std::shared_ptr<Program>> Find(int64_t id) const;

  // Records of the last kMaxRecords compilations, in order.
  std::vector<CompilationRecord> Records() const;

 private:
  struct Entry {
    // Held while the program is compiled.
    absl::Mutex compiling;
    // The rest is guarded by the cache's lock. Null until there is a program.
    std::shared_ptr<Program> program;
    std::shared_ptr<CompilationRecord> record;
    // The entry's position in used_, if it has a program.
    std::list<std::string>::iterator use;
  };

  // Programs that were kept, to be destroyed without the lock.
  using Dropped = std::vector<std::shared_ptr<Program>>;

  // The entry's program, if it has one, which is then marked as used.
  std::shared_ptr<Program> Use(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(const std::string& key, Entry* entry, const std::shared_ptr<Program>& program)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remember(std::shared_ptr<CompilationRecord> record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remove(const std::string& key, Dropped* dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Trim(const ProgramLimits& limits, Dropped* dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::function<ProgramLimits()> limits_;
  mutable absl::Mutex mutex_;
  int64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<std::string, std::shared_ptr<Entry>> by_key_ ABSL_GUARDED_BY(mutex_);
  // Programs that somebody still holds, and some that are gone.
  absl::flat_hash_map<int64_t, std::weak_ptr<Program>> by_id_ ABSL_GUARDED_BY(mutex_);
  // The keys of entries with a program, least recently used first.
  std::list<std::string> used_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // In the order in which the compilations finished.
  std::deque<std::shared_ptr<CompilationRecord>> records_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_PROGRAM_CACHE_H_
