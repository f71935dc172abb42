#include "cc/runtime/program_cache.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"

namespace tf_tpu_ext {
namespace {

// XLA throws if shapes in a malformed computation fail a check. No other stack frame catches this,
// so the process would terminate.
absl::StatusOr<std::shared_ptr<Program>> CompileOrCatch(const ProgramCache::Compile& compile,
                                                        CompilationRecord* record) {
  try {
    return compile(record->program_id, record);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("XLA can't take computation '", record->name, "': ", error.what()));
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<Program>> ProgramCache::GetOrCompile(const std::string& key,
                                                                    const Compile& compile) {
  std::shared_ptr<Entry> entry;
  {
    absl::MutexLock lock(&mutex_);
    std::shared_ptr<Entry>& slot = by_key_[key];
    if (slot == nullptr) slot = std::make_shared<Entry>();
    entry = slot;
    if (std::shared_ptr<Program> program = Use(entry.get())) return program;
  }
  absl::MutexLock compiling(&entry->compiling);
  auto record = std::make_shared<CompilationRecord>();
  {
    absl::MutexLock lock(&mutex_);
    if (std::shared_ptr<Program> program = Use(entry.get())) return program;
    record->program_id = next_id_++;
    record->key_hash = absl::HashOf(key);
  }
  absl::StatusOr<std::shared_ptr<Program>> program = CompileOrCatch(compile, record.get());
  const ProgramLimits limits = limits_();
  Dropped dropped;
  absl::MutexLock lock(&mutex_);
  Remember(record);
  // The entry is gone if the key was dropped in the meantime.
  const auto found = by_key_.try_emplace(key, entry).first;
  const bool is_current = found->second == entry;
  if (!program.ok()) {
    record->error = program.status().ToString();
    // Other callers that wait for it try again, and remove it if they fail.
    if (is_current && entry.use_count() == 2) by_key_.erase(found);
    return program;
  }
  by_id_[record->program_id] = *program;
  if (is_current) {
    entry->record = std::move(record);
    Keep(key, entry.get(), *program);
    Trim(limits, &dropped);
  }
  return program;
}

std::shared_ptr<Program> ProgramCache::Use(Entry* entry) {
  if (entry->program == nullptr) return nullptr;
  ++entry->record->hits;
  used_.splice(used_.end(), used_, entry->use);
  return entry->program;
}

void ProgramCache::Keep(const std::string& key, Entry* entry,
                        const std::shared_ptr<Program>& program) {
  entry->program = program;
  entry->use = used_.insert(used_.end(), key);
  bytes_ += entry->record->bytes;
}

void ProgramCache::Remember(std::shared_ptr<CompilationRecord> record) {
  const auto same = std::find_if(records_.rbegin(), records_.rend(), [&](const auto& each) {
    return each->key_hash == record->key_hash;
  });
  if (same != records_.rend()) record->same_as = (*same)->program_id;
  records_.push_back(std::move(record));
  if (records_.size() > kMaxRecords) records_.pop_front();
}

void ProgramCache::Remove(const std::string& key, Dropped* dropped) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  Entry& entry = *found->second;
  if (entry.program != nullptr) {
    bytes_ -= entry.record->bytes;
    used_.erase(entry.use);
    dropped->push_back(std::move(entry.program));
  }
  by_key_.erase(found);
}

void ProgramCache::Trim(const ProgramLimits& limits, Dropped* dropped) {
  // The last one is about to be used.
  while (used_.size() > 1 &&
         (static_cast<int64_t>(used_.size()) > limits.programs || bytes_ > limits.bytes)) {
    const std::string key = used_.front();
    Remove(key, dropped);
  }
  // Only occasionally, so that the average cost is small.
  if (by_id_.size() < 2 * used_.size() + 16) return;
  absl::erase_if(by_id_, [](const auto& program) { return program.second.expired(); });
}

void ProgramCache::Drop(const std::string& key) {
  Dropped dropped;
  absl::MutexLock lock(&mutex_);
  Remove(key, &dropped);
}

void ProgramCache::NameArguments(int64_t id, const std::vector<ArgumentName>& names) {
  absl::MutexLock lock(&mutex_);
  // It is among the last records.
  const auto record = std::find_if(records_.rbegin(), records_.rend(),
                                   [id](const auto& each) { return each->program_id == id; });
  if (record == records_.rend()) return;
  std::vector<RecordedArgument>& arguments = (*record)->arguments;
  // An op that passes only what is on its core numbers its arguments differently.
  if (arguments.size() != names.size()) return;
  for (size_t i = 0; i < names.size(); ++i) {
    arguments[i].name = names[i].name;
    arguments[i].is_variable = names[i].is_variable;
  }
}

absl::StatusOr<std::shared_ptr<Program>> ProgramCache::Find(int64_t id) const {
  absl::MutexLock lock(&mutex_);
  const auto found = by_id_.find(id);
  if (found != by_id_.end()) {
    if (std::shared_ptr<Program> program = found->second.lock()) return program;
  }
  return absl::NotFoundError(
      absl::StrCat("There is no compiled TPU program ", id,
                   ". A TPUExecute op must get its key from a _TPUCompileMlir op that ran in the "
                   "same process and succeeded."));
}

std::vector<CompilationRecord> ProgramCache::Records() const {
  absl::MutexLock lock(&mutex_);
  std::vector<CompilationRecord> records;
  for (const std::shared_ptr<CompilationRecord>& record : records_) records.push_back(*record);
  absl::c_sort(records, [](const CompilationRecord& a, const CompilationRecord& b) {
    return a.program_id < b.program_id;
  });
  return records;
}

}  // namespace tf_tpu_ext
