#include "cc/describe/describe.h"

#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cc/base/core_numbers.h"
#include "cc/base/process.h"
#include "cc/base/program_options.h"
#include "cc/compiler/build/compilation_cache.h"

namespace tf_tpu_ext {
namespace {

// Seconds since 1970, or null if it has not ended.
JsonObject& AddTime(const char* name, absl::Time time, JsonObject* json) {
  if (time == absl::InfinitePast()) return json->Null(name);
  return json->Number(name, absl::ToDoubleSeconds(time - absl::UnixEpoch()));
}

std::vector<int> Numbers(const std::vector<Core>& cores) {
  std::vector<int> numbers;
  for (Core core : cores) numbers.push_back(core.value());
  return numbers;
}

}  // namespace

JsonObject Describe(const MachineOptions& options) {
  JsonObject json;
  json.Integer("cores", options.cores)
      .Integers("mesh_shape", MeshShape(options))
      .Number("wait_limit_seconds", absl::ToDoubleSeconds(options.wait_limit))
      .Number("host_limit_seconds", absl::ToDoubleSeconds(options.host_limit))
      .Integer("sparse_cores", options.sparse_cores)
      .Bool("local_devices", options.local_devices)
      .Integer("max_programs", options.program_limits.programs)
      .Integer("max_program_bytes", options.program_limits.bytes)
      .Integer("max_cache_bytes", options.max_cache_bytes);
  for (const auto& [name, value] : kProgramSwitches) json.Bool(name, options.programs.*value);
  if (options.compilation_cache != nullptr) {
    json.String("compilation_cache", options.compilation_cache->folder());
  } else {
    json.Null("compilation_cache");
  }
  return json;
}

JsonObject Describe(const RecordedArgument& argument) {
  return JsonObject()
      .String("name", argument.name)
      .String("dtype", argument.type)
      .String("shape", argument.shape)
      .String("value", argument.value)
      .Integer("bytes", argument.bytes)
      .Bool("is_variable", argument.is_variable)
      .Bool("is_dynamic", argument.is_dynamic);
}

JsonObject Describe(const ProgramNote& note) {
  return JsonObject()
      .String("kind", note.kind)
      .String("what", note.what)
      .Integer("count", note.count)
      .String("op", note.op)
      .String("source", note.source);
}

JsonObject Describe(const CompilationRecord& record) {
  return JsonObject()
      .Objects("arguments", DescribeAll(record.arguments))
      .Objects("notes", DescribeAll(record.notes))
      .String("first_op", record.first_op)
      .String("options", record.options)
      .Number("started", absl::ToDoubleSeconds(record.started - absl::UnixEpoch()))
      .Integer("argument_bytes", record.memory.arguments)
      .Integer("result_bytes", record.memory.results)
      .Integer("temporary_bytes", record.memory.temporaries)
      .Integer("program_id", record.program_id)
      .Integer("same_as", record.same_as)
      .String("name", record.name)
      .String("argument_shapes", record.argument_shapes)
      .Integer("num_replicas", record.num_replicas)
      .Integer("num_cores_per_replica", record.num_cores_per_replica)
      .Number("lowering_seconds", absl::ToDoubleSeconds(record.lowering))
      .Number("building_seconds", absl::ToDoubleSeconds(record.building))
      .Integer("tensorflow_kernels", record.tensorflow_kernels)
      .Integer("stacked_replicas", record.batched_replicas)
      .Bool("restored", record.restored)
      .Integer("program_bytes", record.bytes)
      .Integer("hits", record.hits)
      .String("error", record.error);
}

JsonObject Describe(const ClusterRecord& record) {
  // A cluster whose program has not run has no counters yet.
  static const auto* const none = new ClusterCounters;
  const auto found = Process::Get().transfer_stats->FindCounters(record);
  const ClusterCounters& counters = found == nullptr ? *none : *found;
  return JsonObject()
      .String("cluster", record.cluster)
      .String("source", record.source)
      .String("not_folded_because", record.not_folded_because)
      .Integer("calls", counters.calls.load())
      .Integer("bytes_to_host", counters.bytes_to_host.load())
      .Integer("bytes_to_device", counters.bytes_to_device.load())
      .Number("running_seconds", counters.running_nanoseconds.load() * 1e-9)
      .Number("waiting_seconds", counters.waiting_nanoseconds.load() * 1e-9);
}

JsonObject Describe(const Finding& finding) {
  return JsonObject()
      .String("kind", finding.kind)
      .Integer("program_id", finding.program_id)
      .String("program", finding.program)
      .Integer("step", finding.step)
      .Integer("replica", finding.replica)
      .String("op", finding.op)
      .String("source", finding.source)
      .String("instruction", finding.instruction)
      .Integer("argument", finding.argument)
      .Integer("variable", finding.variable)
      .Integer("result", finding.result)
      .String("other_op", finding.other_op)
      .String("other_source", finding.other_source)
      .Integer("count", finding.count);
}

JsonObject Describe(const PaddedInput& input) {
  return JsonObject()
      .Integer("program_id", input.program_id)
      .Integer("argument", input.argument.value())
      .Integer("elements", input.totals.elements)
      .Integer("padding", input.totals.padding);
}

JsonObject Describe(const CoreWaits& waits) {
  return JsonObject()
      .Integer("core", waits.core.value())
      .Number("waited_seconds", absl::ToDoubleSeconds(waits.waited))
      .Integer("times_last", waits.times_last)
      .Number("kept_waiting_seconds", absl::ToDoubleSeconds(waits.kept_waiting));
}

JsonObject Describe(const CollectiveTotals& totals) {
  return JsonObject()
      .String("name", totals.name)
      .Integer("bytes", totals.bytes)
      .Integer("meetings", totals.meetings)
      .Objects("cores", DescribeAll(totals.cores));
}

JsonObject Describe(const TimedRun& run) {
  JsonObject json;
  json.Integers("cores", Numbers(run.cores));
  AddTime("begin", run.begin, &json);
  return AddTime("end", run.end, &json);
}

JsonObject Describe(const TimedLaunch& launch) {
  JsonObject json;
  json.Integer("program_id", launch.program_id)
      .Integer("run_id", launch.run_id.value())
      .Objects("runs", DescribeAll(launch.runs));
  AddTime("begin", launch.begin, &json);
  return AddTime("end", launch.end, &json);
}

JsonObject Describe(const CollectiveMeeting& meeting) {
  std::vector<JsonObject> arrivals;
  for (const auto& [core, time] : meeting.arrivals) {
    JsonObject& arrival = arrivals.emplace_back();
    arrival.Integer("core", core.value());
    AddTime("time", time, &arrival);
  }
  return JsonObject()
      .String("name", meeting.name)
      .Integer("run_id", meeting.run_id.value())
      .Objects("arrivals", arrivals);
}

JsonObject Describe(const FaultCounts& counts) {
  return JsonObject()
      .String("point", FaultPointName(counts.point))
      .Integer("reached", counts.reached)
      .Integer("failed", counts.failed)
      .Integer("stalled", counts.stalled);
}

JsonObject Describe(const TargetProgram& program) {
  return JsonObject()
      .Integer("program_id", program.program_id)
      .String("name", program.name)
      .String("argument_shapes", program.argument_shapes)
      .Integer("num_replicas", program.num_replicas)
      .Integer("num_cores_per_replica", program.num_cores_per_replica)
      .Objects("notes", DescribeAll(program.notes))
      .String("not_asked", program.not_asked)
      .String("error", program.error);
}

JsonObject Describe(const Ongoing& ongoing) {
  return JsonObject()
      .String("doing", ongoing.doing)
      .String("what", ongoing.what)
      .Number("seconds", absl::ToDoubleSeconds(absl::Now() - ongoing.start));
}

JsonObject DescribeProgress(absl::Duration age) {
  const LaunchProgress progress = Process::Get().launches->Progress(age);
  return JsonObject()
      .Integer("ended", progress.ended)
      .Integer("run_id", progress.run_id.value())
      .String("program", progress.program)
      .String("waits", progress.waits)
      .Objects("ongoing", DescribeAll(AllOngoing()));
}

}  // namespace tf_tpu_ext
