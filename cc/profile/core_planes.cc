#include "cc/profile/core_planes.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/profile/hlo_ops.h"
#include "cc/profile/launch_context.h"
#include "cc/profile/meetings.h"
#include "cc/profile/serial_spans.h"
#include "cc/program/compiled_program.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "tensorflow/core/platform/host_info.h"
#include "tsl/profiler/lib/context_types.h"
#include "xla/service/executable.h"
#include "xla/tsl/profiler/convert/xla_op_utils.h"
#include "xla/tsl/profiler/utils/xplane_builder.h"
#include "xla/tsl/profiler/utils/xplane_schema.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::profiler::XEventMetadata;
using tensorflow::profiler::XPlane;
using tensorflow::profiler::XSpace;
using tensorflow::profiler::XStat;
using tensorflow::profiler::XStatMetadata;
using tsl::profiler::StatType;
using tsl::profiler::XEventBuilder;
using tsl::profiler::XLineBuilder;
using tsl::profiler::XPlaneBuilder;

// XProf treats it as a TPU because it contains these three letters.
constexpr char kDeviceType[] = "Virtual TPU core of tf_tpu_ext";
constexpr char kWaitsLineName[] = "Waits";

// The trace viewer shows the lines in this order.
enum LineNumber : int64_t { kSteps = 1, kModules, kOps, kWaits };

// A run and a device. The programs that a core runs in it follow each other.
using RunKey = std::pair<int64_t, int64_t>;

const xla::HloModule& ModuleOf(const RecordedRun& run) { return run.program->executable->module(); }

RunKey KeyOf(const RecordedRun& run) { return {run.run_id.value(), run.core_in_pod.value()}; }

// Encodes XProf's message CoreDetails, which TensorFlow does not have.
std::string EncodeCoreDetails(Core core, Core core_in_pod, int cores_per_chip) {
  enum Field { kHostname = 1, kOrdinal, kCoreOfChip, kLocalChip, kGlobalChip, kGlobalCore };
  constexpr int kVarint = 0, kBytes = 2;
  std::string encoded;
  {
    google::protobuf::io::StringOutputStream stream(&encoded);
    google::protobuf::io::CodedOutputStream out(&stream);
    const std::string host = tensorflow::port::Hostname();
    out.WriteTag(kHostname << 3 | kBytes);
    out.WriteVarint32(static_cast<uint32_t>(host.size()));
    out.WriteString(host);
    for (const auto& [field, value] :
         {std::pair(kOrdinal, core.value()), std::pair(kCoreOfChip, core.value() % cores_per_chip),
          std::pair(kLocalChip, core.value() / cores_per_chip),
          std::pair(kGlobalChip, core_in_pod.value() / cores_per_chip),
          std::pair(kGlobalCore, core_in_pod.value())}) {
      out.WriteTag(field << 3 | kVarint);
      out.WriteVarint32(static_cast<uint32_t>(value));
    }
  }
  return encoded;
}

// The ops of all modules; each module is searched once.
class Modules {
 public:
  // Null if the module has no op with that name.
  const HloOp* Find(const RecordedRun& run, const std::string& op) {
    const xla::HloModule& module = ModuleOf(run);
    auto [ops, is_new] = ops_.try_emplace(module.unique_id());
    if (is_new) ops->second = std::make_unique<HloOps>(DescribeOps(module));
    const auto found = ops->second->find(op);
    return found == ops->second->end() ? nullptr : &found->second;
  }

 private:
  absl::flat_hash_map<int, std::unique_ptr<HloOps>> ops_;
};

// What a core has done.
struct CoreHistory {
  Core core_in_pod;
  std::vector<const RecordedRun*> runs;
  std::vector<RecordedWait> waits;
};

class CorePlane {
 public:
  using OpsOfRuns = std::map<RunKey, std::vector<const ThunkEvent*>>;

  CorePlane(Core core, const CoreHistory& history, const MachineDescription& machine,
            const OpsOfRuns& ops, int64_t origin, Modules* modules, XPlane* plane)
      : core_(core),
        history_(history),
        ops_(ops),
        modules_(*modules),
        xplane_(*plane),
        plane_(plane),
        origin_(origin) {
    plane_.SetId(core.value());
    plane_.SetName(absl::StrCat(tsl::profiler::kTpuPlanePrefix, core));
    const MachineRates rates = machine.rates.OfCore(machine.cores);
    plane_.AddStatValue(Stat(StatType::kDeviceTypeString), kDeviceType);
    plane_.AddStatValue(Stat(StatType::kDevCapPeakTeraflopsPerSecond),
                        rates.flops_per_second / 1e12);
    plane_.AddStatValue(Stat(StatType::kDevCapPeakHbmBwGigabytesPerSecond),
                        rates.bytes_per_second / 1e9);
    XStat* details = xplane_.add_stats();
    details->set_metadata_id(Stat(StatType::kCoreDetails).id());
    details->set_bytes_value(EncodeCoreDetails(core, history.core_in_pod, machine.cores_per_chip));
  }

  void Fill() {
    AddSteps();
    AddModules();
    AddOps();
    AddWaits();
  }

 private:
  const XStatMetadata& Stat(StatType type) {
    return *plane_.GetOrCreateStatMetadata(tsl::profiler::GetStatTypeStr(type));
  }
  const XStatMetadata& Stat(const char* name) { return *plane_.GetOrCreateStatMetadata(name); }

  // Picoseconds since the origin, for a time in nanoseconds.
  int64_t Picos(int64_t time) const { return (time - origin_) * kPicosPerNano; }

  XLineBuilder Line(LineNumber number, absl::string_view name) {
    XLineBuilder line = plane_.GetOrCreateLine(number);
    line.SetName(name);
    line.SetTimestampNs(origin_);
    return line;
  }

  XEventBuilder AddEvent(XLineBuilder* line, const Span& span, const XEventMetadata& metadata) {
    XEventBuilder event = line->AddEvent(metadata);
    event.SetOffsetPs(span.begin);
    event.SetDurationPs(span.end - span.begin);
    return event;
  }

  // Makes `add` add an event for each of the spans, so that they are either nested or disjoint.
  template <typename Add>
  void AddSerially(const std::vector<Span>& spans, const Add& add) {
    const SerialSpans serial = MakeSerial(spans);
    for (int i : serial.order) {
      XEventBuilder event = add(i, serial.spans[i]);
      // How long it took in total, when something else took over before it ended.
      if (serial.spans[i].end < spans[i].end) {
        event.AddStatValue(Stat("whole_duration_ps"), spans[i].end - spans[i].begin);
      }
    }
  }

  // Like a TPU's step markers: a step ends where the next one begins.
  void AddSteps() {
    std::map<RunId, Span> launches;
    for (const RecordedRun* run : history_.runs) {
      auto [launch, is_new] = launches.try_emplace(run->run_id, Span{run->begin, run->end});
      launch->second.begin = std::min(launch->second.begin, run->begin);
      launch->second.end = std::max(launch->second.end, run->end);
    }
    std::vector<Span> steps;
    steps.reserve(launches.size());
    for (const auto& [run_id, span] : launches) steps.push_back(span);
    std::sort(steps.begin(), steps.end(),
              [](const Span& a, const Span& b) { return a.begin < b.begin; });
    XLineBuilder line = Line(kSteps, tsl::profiler::kStepLineName);
    for (size_t i = 0; i < steps.size(); ++i) {
      // Not at the same moment, where XProf would find both.
      const int64_t end =
          i + 1 < steps.size() ? std::max(steps[i].begin, steps[i + 1].begin - 1) : steps[i].end;
      AddEvent(&line, {Picos(steps[i].begin), Picos(end)},
               *plane_.GetOrCreateEventMetadata(absl::StrCat(i)));
    }
  }

  void AddModules() {
    XLineBuilder line = Line(kModules, tsl::profiler::kXlaModuleLineName);
    std::vector<Span> spans;
    for (const RecordedRun* run : history_.runs) {
      spans.push_back({Picos(run->begin), Picos(run->end)});
    }
    AddSerially(spans, [&](int i, const Span& span) {
      const RecordedRun& run = *history_.runs[i];
      const xla::HloModule& module = ModuleOf(run);
      XEventMetadata* metadata = plane_.GetOrCreateEventMetadata(
          tsl::profiler::HloModuleNameWithProgramId(module.name(), module.unique_id()));
      XEventBuilder event = AddEvent(&line, span, *metadata);
      event.AddStatValue(Stat(StatType::kProgramId), int64_t{module.unique_id()});
      event.AddStatValue(Stat(StatType::kRunId), run.run_id.value());
      event.AddStatValue(Stat(StatType::kConsumerType),
                         static_cast<int64_t>(tsl::profiler::ContextType::kTpuLaunch));
      event.AddStatValue(Stat(StatType::kConsumerId), LaunchContext(run.run_id, core_));
      event.AddStatValue(Stat("launch"), run.launch_id.value());
      event.AddStatValue(Stat("program"), run.program->name);
      if (run.cores.size() > 1) {
        event.AddStatValue(Stat("one_run_for_cores"), absl::StrJoin(run.cores, ", "));
      }
      return event;
    });
  }

  void AddOps() {
    struct Op {
      const RecordedRun* run;
      // Null where the run combines the replicas' values.
      const ThunkEvent* event = nullptr;
      // Null if the module does not have it.
      const HloOp* known = nullptr;
    };
    std::vector<Op> ops;
    std::vector<Span> spans;
    for (const RecordedRun* run : history_.runs) {
      if (run->combined_until.has_value()) {
        ops.push_back({run});
        spans.push_back({Picos(run->begin), Picos(*run->combined_until)});
      }
      const auto found = ops_.find(KeyOf(*run));
      if (found == ops_.end()) continue;
      for (const ThunkEvent* event : found->second) {
        if (event->begin_ps < Picos(run->begin) || event->begin_ps > Picos(run->end)) continue;
        const HloOp* known = modules_.Find(*run, event->op);
        ops.push_back({run, event, known});
        // A thread may note the end of its op after others have gone on to the end of the run.
        const int64_t end = std::min(event->end_ps, Picos(run->end));
        const bool has_parts = known != nullptr && known->has_parts;
        spans.push_back({event->begin_ps, std::max(event->begin_ps, end), has_parts});
      }
    }
    XLineBuilder line = Line(kOps, tsl::profiler::kXlaOpLineName);
    AddSerially(spans, [&](int i, const Span& span) {
      const Op& op = ops[i];
      return AddEvent(&line, span,
                      op.event == nullptr ? *MetadataOfCombining(*op.run)
                                          : *MetadataOf(*op.run, op.event->op, op.known));
    });
  }

  // The all-reduce that was split off together with the update. It is no longer an op of a module.
  const XEventMetadata* MetadataOfCombining(const RecordedRun& run) {
    HloOp op;
    // A number that no op of the module has.
    op.symbol = std::numeric_limits<int32_t>::max();
    op.text = "all-reduce of the replicas' values, before the shared update";
    op.category = "all-reduce";
    // Each core's contribution is read, and the result is written.
    op.bytes_accessed = run.combined_bytes * (static_cast<int64_t>(run.cores.size()) + 1);
    return MetadataOf(run, "all-reduce", &op);
  }

  // `known` may be null.
  const XEventMetadata* MetadataOf(const RecordedRun& run, const std::string& op,
                                   const HloOp* known) {
    const int64_t program = ModuleOf(run).unique_id();
    XEventMetadata*& metadata = metadata_of_ops_[{program, op}];
    if (metadata != nullptr) return metadata;
    metadata = plane_.CreateEventMetadata();
    metadata->set_display_name(op);
    metadata->set_name(known != nullptr ? known->text : op);
    tsl::profiler::XStatsBuilder<XEventMetadata> stats(metadata, &plane_);
    stats.AddStatValue(Stat(StatType::kProgramId), program);
    if (known == nullptr) return metadata;
    const auto cores = static_cast<int64_t>(run.cores.size());
    stats.AddStatValue(Stat(StatType::kSymbolId), known->symbol);
    stats.AddStatValue(Stat(StatType::kHloCategory), known->category);
    // A core's share of what is done once for several cores.
    stats.AddStatValue(Stat(StatType::kFlops), known->flops / cores);
    stats.AddStatValue(Stat(StatType::kBytesAccessed), known->bytes_accessed / cores);
    if (!known->tf_op.empty()) stats.AddStatValue(Stat(StatType::kTfOp), known->tf_op);
    if (!known->source.empty()) stats.AddStatValue(Stat(StatType::kSourceInfo), known->source);
    return metadata;
  }

  void AddWaits() {
    if (history_.waits.empty()) return;
    XLineBuilder line = Line(kWaits, kWaitsLineName);
    std::vector<Span> spans;
    for (const RecordedWait& wait : history_.waits) {
      spans.push_back({Picos(wait.begin), Picos(wait.end)});
    }
    AddSerially(spans, [&](int i, const Span& span) {
      const RecordedWait& wait = history_.waits[i];
      const std::string name = wait.waited_for.has_value()
                                   ? absl::StrCat(wait.name, ": core ", *wait.waited_for)
                                   : wait.name;
      XEventBuilder event = AddEvent(&line, span, *plane_.GetOrCreateEventMetadata(name));
      event.AddStatValue(Stat(StatType::kRunId), wait.run_id.value());
      if (wait.bytes > 0) event.AddStatValue(Stat(StatType::kBytesTransferred), wait.bytes);
      if (!wait.source.empty()) event.AddStatValue(Stat(StatType::kSourceInfo), wait.source);
      return event;
    });
  }

  const Core core_;
  const CoreHistory& history_;
  const OpsOfRuns& ops_;
  Modules& modules_;
  XPlane& xplane_;
  XPlaneBuilder plane_;
  // In nanoseconds.
  const int64_t origin_;
  std::map<std::pair<int64_t, std::string>, XEventMetadata*> metadata_of_ops_;
};

}  // namespace

int64_t FirstBegin(const Recording& recording) {
  int64_t begin = std::numeric_limits<int64_t>::max();
  for (const RecordedRun& run : recording.runs) begin = std::min(begin, run.begin);
  for (const RecordedWait& wait : recording.waits) begin = std::min(begin, wait.begin);
  return begin;
}

void AddCorePlanes(const Recording& recording, const std::vector<ThunkEvent>& ops, int64_t origin,
                   const MachineDescription& machine, XSpace* space) {
  std::map<Core, CoreHistory> histories;
  // By the core that ran it, and by that core's number in the pod.
  std::map<std::pair<RunId, Core>, const RecordedRun*> run_on_core, run_in_pod;
  for (const RecordedRun& run : recording.runs) {
    for (Core core : run.cores) {
      CoreHistory& history = histories[core];
      history.core_in_pod = run.program->pod.NumberInPod(core);
      history.runs.push_back(&run);
    }
    // The run of a shared update waits for nothing.
    if (!run.program->waits) continue;
    run_on_core[{run.run_id, run.cores.front()}] = &run;
    run_in_pod[{run.run_id, run.core_in_pod}] = &run;
  }
  for (const RecordedWait& wait : FindWhoWasLast(recording.waits)) {
    if (!wait.in_run) {
      const auto history = histories.find(wait.core);
      if (history != histories.end()) history->second.waits.push_back(wait);
      continue;
    }
    const auto& runs = wait.meeting.empty() ? run_on_core : run_in_pod;
    const auto run = runs.find({wait.run_id, wait.core});
    if (run == runs.end()) continue;
    for (Core core : run->second->cores) histories[core].waits.push_back(wait);
  }
  CorePlane::OpsOfRuns ops_of_runs;
  for (const ThunkEvent& op : ops) {
    ops_of_runs[{op.run_id, op.device}].push_back(&op);
  }
  Modules modules;
  for (const auto& [core, history] : histories) {
    CorePlane(core, history, machine, ops_of_runs, origin, &modules, space->add_planes()).Fill();
  }
}

}  // namespace tf_tpu_ext
