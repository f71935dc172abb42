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
  const bool is_host_op = entry->user == User::kHostOp;
  if (is_host_op && std::any_of(entries_.begin(), entries_.end(), [&](const Entry& other) {
        return other.started && other.user == User::kProgramThatCallsHost &&
               HaveCommon(other.cores, entry->cores);
      })) {
    return true;
  }
  bool is_earlier = true;
  for (auto other = entries_.begin(); other != entries_.end(); ++other) {
    if (other == entry) {
      is_earlier = false;
    } else if ((is_earlier || other->started) && HaveCommon(other->cores, entry->cores) &&
               !(is_host_op && other->user == User::kHostOp)) {
      return false;
    }
  }
  return true;
}

CoreOrder::Entrance CoreOrder::Enter(std::vector<Core> cores, User user,
                                     std::function<void()> start) {
  std::sort(cores.begin(), cores.end());
  absl::MutexLock lock(&mutex_);
  last_place_ = Place(last_place_.value() + 1);
  const auto entry = entries_.insert(
      entries_.end(), {last_place_, std::move(cores), user, std::move(start), /*started=*/false});
  entry->started = IsNext(entry);
  return {entry->place, entry->started};
}

void CoreOrder::Leave(Place place) {
  std::deque<std::function<void()>> starts;
  {
    absl::MutexLock lock(&mutex_);
    entries_.remove_if([place](const Entry& entry) { return entry.place == place; });
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->started || !IsNext(entry)) continue;
      entry->started = true;
      starts.push_back(std::move(entry->start));
    }
  }
  // A program that starts here may also end here and leave, which would start the next one inside
  // it, and so on down the stack. So the outermost call starts all of them in turn.
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
