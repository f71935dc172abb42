// Compiled programs, the latest used of them.
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
// The programs used least recently go when there are more than the limits allow. Who has a program
// keeps it, and Find finds it as long: it ends with the last one who has it.
class ProgramCache {
 public:
  // How many compilations are remembered.
  static constexpr size_t kMaxRecords = 10'000;

  // Compiles the program `id` and fills in the record.
  using Compile = std::function<absl::StatusOr<std::shared_ptr<Program>>(
      int64_t id, CompilationRecord* record)>;

  // `limits` is asked whenever a program has been compiled.
  explicit ProgramCache(std::function<ProgramLimits()> limits) : limits_(std::move(limits)) {}

  // Returns the program for `key`, which names all that it depends on, compiling it if it is not
  // there. Callers that ask for the same key at once wait for one compilation; a failed one is
  // tried again at the next call.
  absl::StatusOr<std::shared_ptr<Program>> GetOrCompile(const std::string& key,
                                                        const Compile& compile);

  // Gives up the program for `key`, which nobody will ask for again. Its record stays.
  void Drop(const std::string& key);

  // Adds names to the record of a program: those of its arguments, in their order.
  void NameArguments(int64_t id, const std::vector<ArgumentName>& names);

  // The program that a launch names, or NotFound.
  absl::StatusOr<std::shared_ptr<Program>> Find(int64_t id) const;

  // Of the last kMaxRecords compilations, in their order.
  std::vector<CompilationRecord> Records() const;

 private:
  struct Entry {
    // Held while the program is compiled.
    absl::Mutex compiling;
    // The rest is guarded by the cache's lock. Null while there is none.
    std::shared_ptr<Program> program;
    std::shared_ptr<CompilationRecord> record;
    // The place in used_, of an entry with a program.
    std::list<std::string>::iterator use;
  };

  // What was kept, and ends without the lock.
  using Dropped = std::vector<std::shared_ptr<Program>>;

  // The program of the entry, if it has one, which counts as used now.
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
  // Those that somebody still has, and some that have ended.
  absl::flat_hash_map<int64_t, std::weak_ptr<Program>> by_id_ ABSL_GUARDED_BY(mutex_);
  // The keys of entries with a program, from the one that was used least recently.
  std::list<std::string> used_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // In the order in which the compilations ended.
  std::deque<std::shared_ptr<CompilationRecord>> records_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_PROGRAM_CACHE_H_
