#include "cc/profile/thunk_events.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "cc/base/run_scope.h"
#include "xla/tsl/profiler/utils/tf_xplane_visitor.h"
#include "xla/tsl/profiler/utils/xplane_schema.h"
#include "xla/tsl/profiler/utils/xplane_visitor.h"

namespace tf_tpu_ext {
namespace {

using tsl::profiler::StatType;
using tsl::profiler::XEventVisitor;
using tsl::profiler::XLineVisitor;
using tsl::profiler::XPlaneVisitor;
using tsl::profiler::XStatVisitor;

constexpr char kEndPrefix[] = "end: ";
constexpr int64_t kNoRun = -1;

std::optional<int64_t> Integer(const XEventVisitor& event, StatType type) {
  const std::optional<XStatVisitor> stat = event.GetStat(type);
  if (!stat.has_value()) return std::nullopt;
  return static_cast<int64_t>(stat->IntOrUintValue());
}

class Reader {
 public:
  explicit Reader(int64_t origin) : origin_(origin) {}

  void Read(const XLineVisitor& thread) {
    std::vector<Scope> scopes;
    const size_t first = events_.size();
    thread.ForEachEvent([&](const XEventVisitor& event) {
      if (event.Name() == RunScope::kEvent) {
        AddScope(event, &scopes);
      } else {
        Read(event);
      }
    });
    FindRuns(std::move(scopes), first);
  }

  std::vector<ThunkEvent> Finish() {
    std::vector<ThunkEvent> in_runs;
    for (size_t i = 0; i < events_.size(); ++i) {
      if (events_[i].run_id == kNoRun) continue;
      in_runs.push_back(std::move(events_[i]));
      if (!contexts_[i].has_value()) continue;
      const auto end = ends_.find(*contexts_[i]);
      if (end == ends_.end()) continue;
      in_runs.back().end_ps = std::max(in_runs.back().begin_ps, end->second);
    }
    return in_runs;
  }

 private:
  // What a thread did for a run.
  struct Scope {
    int64_t begin_ps, end_ps;
    int64_t run_id, device;
  };

  void AddScope(const XEventVisitor& event, std::vector<Scope>* scopes) const {
    const auto run = Integer(event, StatType::kRunId);
    const auto device = Integer(event, StatType::kDeviceOrdinal);
    if (!run || !device) return;
    const int64_t begin = BeginOf(event);
    scopes->push_back({begin, begin + event.DurationPs(), *run, *device});
  }

  // For the ops of a thread, from `first` on, that don't name their run themselves.
  void FindRuns(std::vector<Scope> scopes, size_t first) {
    if (scopes.empty()) return;
    absl::c_sort(scopes, [](const Scope& a, const Scope& b) { return a.begin_ps < b.begin_ps; });
    for (size_t i = first; i < events_.size(); ++i) {
      ThunkEvent& event = events_[i];
      if (event.run_id != kNoRun) continue;
      const auto later = absl::c_upper_bound(
          scopes, event.begin_ps, [](int64_t time, const Scope& s) { return time < s.begin_ps; });
      // Scopes on a thread are nested or disjoint, so the last that began is the innermost.
      const auto scope =
          std::find_if(std::make_reverse_iterator(later), scopes.rend(),
                       [&](const Scope& earlier) { return earlier.end_ps >= event.end_ps; });
      if (scope == scopes.rend()) continue;
      event.run_id = scope->run_id;
      event.device = scope->device;
    }
  }

  void Read(const XEventVisitor& event) {
    if (absl::StartsWith(event.Name(), kEndPrefix)) {
      if (const auto context = Integer(event, StatType::kConsumerId)) {
        ends_.emplace(*context, BeginOf(event));
      }
      return;
    }
    const std::optional<XStatVisitor> op = event.GetStat(StatType::kHloOp);
    if (!op.has_value()) return;
    events_.push_back({Integer(event, StatType::kRunId).value_or(kNoRun),
                       Integer(event, StatType::kDeviceOrdinal).value_or(0),
                       std::string(op->StrOrRefValue()), BeginOf(event),
                       BeginOf(event) + event.DurationPs()});
    contexts_.push_back(Integer(event, StatType::kProducerId));
  }

  int64_t BeginOf(const XEventVisitor& event) const {
    return (event.LineTimestampNs() - origin_) * kPicosPerNano + event.OffsetPs();
  }

  const int64_t origin_;
  std::vector<ThunkEvent> events_;
  // For each event, the context that the event of its end refers to.
  std::vector<std::optional<int64_t>> contexts_;
  absl::flat_hash_map<int64_t, int64_t> ends_;
};

}  // namespace

std::vector<ThunkEvent> ReadThunkEvents(const tensorflow::profiler::XSpace& space, int64_t origin) {
  Reader reader(origin);
  for (const tensorflow::profiler::XPlane& plane : space.planes()) {
    if (plane.name() != tsl::profiler::kHostThreadsPlaneName) continue;
    const XPlaneVisitor visitor = tsl::profiler::CreateTfXPlaneVisitor(&plane);
    visitor.ForEachLine([&](const XLineVisitor& line) { reader.Read(line); });
  }
  return reader.Finish();
}

}  // namespace tf_tpu_ext
