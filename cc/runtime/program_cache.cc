#include "cc/runtime/program_cache.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace tf_tpu_ext {

absl::StatusOr<std::shared_ptr<Program>> ProgramCache::GetOrCompile(const std::string& key,
                                                                    const Compile& compile) {
  std::shared_ptr<Entry> entry;
  {
    absl::MutexLock lock(&mutex_);
    std::shared_ptr<Entry>& slot = by_key_[key];
    if (slot == nullptr) slot = std::make_shared<Entry>();
    entry = slot;
    if (entry->program != nullptr) {
      ++entry->record.hits;
      return entry->program;
    }
  }
  absl::MutexLock compiling(&entry->compiling);
  int64_t id;
  {
    absl::MutexLock lock(&mutex_);
    if (entry->program != nullptr) {
      ++entry->record.hits;
      return entry->program;
    }
    id = next_id_++;
  }
  CompilationRecord record;
  record.program_id = id;
  absl::StatusOr<std::shared_ptr<Program>> program = compile(id, &record);
  absl::MutexLock lock(&mutex_);
  if (!program.ok()) {
    record.error = program.status().ToString();
    failures_.push_back(std::move(record));
    return program;
  }
  entry->program = *program;
  entry->record = std::move(record);
  order_.push_back(entry);
  by_id_[id] = *program;
  return program;
}

void ProgramCache::Drop(const std::string& key) {
  // Ends the program outside of the lock.
  std::shared_ptr<Program> dropped;
  absl::MutexLock lock(&mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  by_id_.erase(found->second->record.program_id);
  dropped = std::move(found->second->program);
  by_key_.erase(found);
}

absl::StatusOr<std::shared_ptr<Program>> ProgramCache::Find(int64_t id) const {
  absl::MutexLock lock(&mutex_);
  auto found = by_id_.find(id);
  if (found != by_id_.end()) return found->second;
  return absl::NotFoundError(
      absl::StrCat("There is no compiled TPU program ", id,
                   ". A TPUExecute op must get its key from a _TPUCompileMlir op that ran in the "
                   "same process and succeeded."));
}

std::vector<CompilationRecord> ProgramCache::Records() const {
  absl::MutexLock lock(&mutex_);
  std::vector<CompilationRecord> records;
  for (const std::shared_ptr<Entry>& entry : order_) records.push_back(entry->record);
  records.insert(records.end(), failures_.begin(), failures_.end());
  absl::c_sort(records, [](const CompilationRecord& a, const CompilationRecord& b) {
    return a.program_id < b.program_id;
  });
  return records;
}

}  // namespace tf_tpu_ext
