#include "cc/runtime/collective_stats.h"

#include <algorithm>

namespace tf_tpu_ext {

void CollectiveStats::Count(CollectiveMeeting meeting, int64_t bytes) {
  auto& arrivals = meeting.arrivals;
  if (arrivals.empty()) return;
  std::sort(arrivals.begin(), arrivals.end());
  const auto last =
      std::max_element(arrivals.begin(), arrivals.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<Core> cores;
  for (const auto& [core, time] : arrivals) cores.push_back(core);
  absl::MutexLock lock(&mutex_);
  Kind kind(meeting.name, bytes, std::move(cores));
  auto found = totals_.find(kind);
  if (found == totals_.end() && totals_.size() < kMostKinds) {
    CollectiveTotals totals;
    totals.name = meeting.name;
    totals.bytes = bytes;
    for (const auto& [core, time] : arrivals) totals.cores.push_back({core});
    found = totals_.emplace(std::move(kind), std::move(totals)).first;
  }
  if (found != totals_.end()) {
    CollectiveTotals& totals = found->second;
    ++totals.meetings;
    absl::Duration all;
    for (size_t i = 0; i < arrivals.size(); ++i) {
      const absl::Duration waited = last->second - arrivals[i].second;
      totals.cores[i].waited += waited;
      all += waited;
    }
    CoreWaits& awaited = totals.cores[last - arrivals.begin()];
    ++awaited.times_last;
    awaited.kept_waiting += all;
  }
  if (meetings_.size() < kMostMeetings) meetings_.push_back(std::move(meeting));
}

std::vector<CollectiveTotals> CollectiveStats::Totals() const {
  absl::MutexLock lock(&mutex_);
  std::vector<CollectiveTotals> all;
  for (const auto& [kind, totals] : totals_) all.push_back(totals);
  return all;
}

std::vector<CollectiveMeeting> CollectiveStats::Meetings() const {
  absl::MutexLock lock(&mutex_);
  return meetings_;
}

}  // namespace tf_tpu_ext
