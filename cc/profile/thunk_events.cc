#include "cc/profile/thunk_events.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
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

std::optional<int64_t> Integer(const XEventVisitor& event, StatType type) {
  const std::optional<XStatVisitor> stat = event.GetStat(type);
  if (!stat.has_value()) return std::nullopt;
  return static_cast<int64_t>(stat->IntOrUintValue());
}

class Reader {
 public:
  explicit Reader(int64_t origin) : origin_(origin) {}

  void Read(const XEventVisitor& event) {
    if (absl::StartsWith(event.Name(), kEndPrefix)) {
      if (const auto context = Integer(event, StatType::kConsumerId)) {
        ends_.emplace(*context, BeginOf(event));
      }
      return;
    }
    const std::optional<XStatVisitor> op = event.GetStat(StatType::kHloOp);
    if (!op.has_value()) return;
    const auto program = Integer(event, StatType::kProgramId);
    const auto run = Integer(event, StatType::kRunId);
    const auto device = Integer(event, StatType::kDeviceOrdinal);
    if (!program || !run || !device) return;
    events_.push_back({*program, *run, *device, std::string(op->StrOrRefValue()), BeginOf(event),
                       BeginOf(event) + event.DurationPs()});
    contexts_.push_back(Integer(event, StatType::kProducerId));
  }

  std::vector<ThunkEvent> Finish() {
    for (size_t i = 0; i < events_.size(); ++i) {
      if (!contexts_[i].has_value()) continue;
      const auto end = ends_.find(*contexts_[i]);
      if (end == ends_.end()) continue;
      events_[i].end_ps = std::max(events_[i].begin_ps, end->second);
    }
    return std::move(events_);
  }

 private:
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
    visitor.ForEachLine([&](const XLineVisitor& line) {
      line.ForEachEvent([&](const XEventVisitor& event) { reader.Read(event); });
    });
  }
  return reader.Finish();
}

}  // namespace tf_tpu_ext
