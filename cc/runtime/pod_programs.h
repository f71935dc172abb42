// The programs of this host that also run on other hosts of a pod.
#ifndef TF_TPU_EXT_CC_RUNTIME_POD_PROGRAMS_H_
#define TF_TPU_EXT_CC_RUNTIME_POD_PROGRAMS_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cc/pods/pod.h"
#include "cc/program/program_key.h"
#include "cc/runtime/program.h"
#include "cc/runtime/program_cache.h"

namespace tf_tpu_ext {

// The program that a key refers to.
struct FoundProgram {
  std::shared_ptr<Program> program;
  // Null for a program that runs only on this machine.
  std::shared_ptr<const Pod> pod;
};

// Indexed by the names that all hosts know. Thread-safe. Does not own the programs: the op that
// compiled a program does.
class PodPrograms {
 public:
  // Records the result of compiling the program on this host. Null if none of its cores is here.
  void Note(const std::string& name, const absl::StatusOr<std::shared_ptr<Program>>& program,
            std::shared_ptr<const Pod> pod);

  // Returns the program, the error of its compilation, or NotFound.
  absl::StatusOr<FoundProgram> Find(const std::string& name) const;

 private:
  struct Entry {
    absl::Status compilation;
    std::weak_ptr<Program> program;
    std::shared_ptr<const Pod> pod;
  };

  mutable absl::Mutex mutex_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  // The number of entries at which those whose program is gone are dropped.
  size_t most_ ABSL_GUARDED_BY(mutex_) = 1024;
};

// The program that the key refers to, in the process's tables.
absl::StatusOr<FoundProgram> FindProgram(const ProgramKey& key);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_POD_PROGRAMS_H_
