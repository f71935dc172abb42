#include "cc/profile/meetings.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"

namespace tf_tpu_ext {

std::vector<RecordedWait> FindWhoWasLast(std::vector<RecordedWait> waits) {
  absl::c_sort(waits, [](const RecordedWait& a, const RecordedWait& b) {
    return std::tie(a.begin, a.end, a.core) < std::tie(b.begin, b.end, b.core);
  });
  // How often a core has come to the meetings with a name.
  std::map<std::tuple<RunId, std::string, Core>, int> times;
  std::map<std::tuple<RunId, std::string, int>, std::vector<RecordedWait>> meetings;
  std::vector<RecordedWait> completed;
  for (RecordedWait& wait : waits) {
    if (wait.meeting.empty()) {
      completed.push_back(std::move(wait));
      continue;
    }
    const int time = times[{wait.run_id, wait.meeting, wait.core}]++;
    meetings[{wait.run_id, wait.meeting, time}].push_back(std::move(wait));
  }
  for (auto& [key, members] : meetings) {
    const RecordedWait& last = members.back();
    for (RecordedWait& wait : members) {
      if (wait.core == last.core || wait.begin >= last.begin) continue;
      wait.waited_for = last.core;
      wait.end = std::min(wait.end, last.begin);
      completed.push_back(wait);
    }
  }
  return completed;
}

}  // namespace tf_tpu_ext
