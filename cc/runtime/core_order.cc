#include "cc/runtime/core_order.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace tf_tpu_ext {
namespace {

bool HaveCommon(const std::vector<Core>& a, const std::vector<Core>& b) {
  auto in_a = a.begin();
  auto in_b = b.begin();
  while (in_a != a.end() && in_b != b.end()) {
    if (*in_a == *in_b) return true;
    if (*in_a < *in_b) {
      ++in_a;
    } else {
      ++in_b;
    }
  }
  return false;
}

}  // namespace

bool CoreOrder::IsNext(std::list<Entry>::const_iterator entry) const {
  return std::none_of(entries_.begin(), entry, [&](const Entry& earlier) {
    return HaveCommon(earlier.cores, entry->cores);
  });
}

bool CoreOrder::Enter(RunId id, std::vector<Core> cores, std::function<void()> start) {
  std::sort(cores.begin(), cores.end());
  absl::MutexLock lock(&mutex_);
  const auto entry =
      entries_.insert(entries_.end(), {id, std::move(cores), std::move(start), /*started=*/false});
  entry->started = IsNext(entry);
  return entry->started;
}

void CoreOrder::Leave(RunId id) {
  std::deque<std::function<void()>> starts;
  {
    absl::MutexLock lock(&mutex_);
    entries_.remove_if([id](const Entry& entry) { return entry.id == id; });
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->started || !IsNext(entry)) continue;
      entry->started = true;
      starts.push_back(std::move(entry->start));
    }
  }
  // A program that starts here may end here and leave, which would start the next one inside of it,
  // and so on down the stack. The outermost call starts them all, one after the other.
  static thread_local std::deque<std::function<void()>>* to_start = nullptr;
  if (to_start != nullptr) {
    for (std::function<void()>& start : starts) to_start->push_back(std::move(start));
    return;
  }
  to_start = &starts;
  while (!starts.empty()) {
    const std::function<void()> start = std::move(starts.front());
    starts.pop_front();
    start();
  }
  to_start = nullptr;
}

}  // namespace tf_tpu_ext
