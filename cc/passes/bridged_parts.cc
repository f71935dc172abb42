#include "cc/passes/bridged_parts.h"

namespace tf_tpu_ext {

BridgedParts::Made BridgedParts::Find(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->second;
}

void BridgedParts::Keep(const std::string& key, Made made) {
  absl::MutexLock lock(&mutex_);
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    entries_.splice(entries_.end(), entries_, found->second);
    DropLast();
  }
  bytes_ += made->ByteSizeLong();
  entries_.emplace_front(key, std::move(made));
  by_key_[key] = entries_.begin();
  while (bytes_ > most_bytes_) DropLast();
}

void BridgedParts::DropLast() {
  bytes_ -= entries_.back().second->ByteSizeLong();
  by_key_.erase(entries_.back().first);
  entries_.pop_back();
}

}  // namespace tf_tpu_ext
