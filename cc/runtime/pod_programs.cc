#include "cc/runtime/pod_programs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/base/process.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {

void PodPrograms::Note(const std::string& name,
                       const absl::StatusOr<std::shared_ptr<Program>>& program,
                       std::shared_ptr<const Pod> pod) {
  absl::MutexLock lock(&mutex_);
  Entry& entry = entries_[name];
  entry.compilation = program.status();
  entry.program = program.ok() ? *program : nullptr;
  entry.pod = std::move(pod);
  if (entries_.size() <= most_) return;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const Entry& each = it->second;
    const bool gone = it->first != name && each.compilation.ok() && each.program.expired();
    it = gone ? entries_.erase(it) : std::next(it);
  }
  most_ = std::max(most_, 2 * entries_.size());
}

absl::StatusOr<FoundProgram> PodPrograms::Find(const std::string& name) const {
  absl::MutexLock lock(&mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return absl::NotFoundError(
        absl::StrCat("This host has not compiled TPU program ", name,
                     " of its pod. Connect to the workers and initialize the TPU system again."));
  }
  const Entry& entry = found->second;
  if (!entry.compilation.ok()) {
    return absl::Status(entry.compilation.code(),
                        absl::StrCat("Compilation failure on ", NameOfHost(entry.pod->here()), ": ",
                                     entry.compilation.message()));
  }
  FoundProgram program{entry.program.lock(), entry.pod};
  if (program.program == nullptr) {
    return absl::NotFoundError(absl::StrCat("TPU program ", name, " of a pod has no core on ",
                                            NameOfHost(entry.pod->here()),
                                            ", or the function that it belongs to has ended."));
  }
  return program;
}

absl::StatusOr<FoundProgram> FindProgram(const ProgramKey& key) {
  if (!key.pod_program.empty()) return Process::Get().pod_programs->Find(key.pod_program);
  TF_ASSIGN_OR_RETURN(std::shared_ptr<Program> program,
                      Process::Get().programs->Find(key.program_id));
  return FoundProgram{std::move(program), nullptr};
}

}  // namespace tf_tpu_ext
