#include "cc/profile/core_planes.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "cc/program/compiled_program.h"
#include "gtest/gtest.h"
#include "xla/hlo/parser/hlo_parser.h"
#include "xla/service/executable.h"
#include "xla/tsl/profiler/utils/tf_xplane_visitor.h"
#include "xla/tsl/profiler/utils/xplane_schema.h"
#include "xla/tsl/profiler/utils/xplane_visitor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::profiler::XPlane;
using tsl::profiler::StatType;
using tsl::profiler::XEventVisitor;
using tsl::profiler::XLineVisitor;
using tsl::profiler::XPlaneVisitor;

// It is asked only for its module.
class NeverRun : public xla::Executable {
 public:
  using Executable::Executable;
  absl::StatusOr<xla::ExecutionOutput> ExecuteAsyncOnStream(
      const xla::ServiceExecutableRunOptions*, std::vector<xla::ExecutionInput>) override {
    return absl::UnimplementedError("It has no code.");
  }
};

constexpr char kModule[] = R"(
HloModule step
ENTRY entry {
  x = f32[64,32] parameter(0)
  y = f32[32,16] parameter(1)
  ROOT dot = f32[64,16] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_type="MatMul" op_name="dense/MatMul" source_file="model.py" source_line=7}
}
)";

std::shared_ptr<const CompiledProgram> MakeProgram() {
  auto module = xla::ParseAndReturnUnverifiedModule(kModule);
  auto program = std::make_shared<CompiledProgram>();
  program->name = "train_step";
  program->executable = std::make_shared<NeverRun>(std::move(*module));
  return program;
}

// Nanoseconds since 1970, which in picoseconds don't fit into 64 bits.
constexpr int64_t kNow = 1'795'716'179'000'000'000;

RecordedRun RunOf(const std::shared_ptr<const CompiledProgram>& program, int64_t run_id,
                  std::vector<Core> cores, int64_t begin, int64_t end) {
  RecordedRun run;
  run.program = program;
  run.launch_id = LaunchId(run_id);
  run.run_id = RunId(run_id);
  run.core_in_pod = cores[0];
  run.cores = std::move(cores);
  run.begin = kNow + begin;
  run.end = kNow + end;
  return run;
}

class CorePlanesTest : public ::testing::Test {
 protected:
  struct Event {
    std::string name;
    int64_t begin_ps;  // since the first run began
    int64_t duration_ps;
  };

  // The times count from when the first run began.
  ThunkEvent DotOf(const RecordedRun& run, int64_t begin_ps, int64_t end_ps) const {
    return {run.run_id.value(), run.cores[0].value(), "dot", begin_ps, end_ps};
  }

  void Build(const std::vector<ThunkEvent>& ops) {
    MachineDescription machine;
    machine.cores = 4;
    machine.cores_per_chip = 2;
    machine.rates = {4e12, 8e9};
    AddCorePlanes(recording_, ops, FirstBegin(recording_), machine, &space_);
  }

  const XPlane& PlaneOf(int core) const {
    for (const XPlane& plane : space_.planes()) {
      if (plane.name() == absl::StrCat("/device:TPU:", core)) return plane;
    }
    ADD_FAILURE() << "Core " << core << " has no plane.";
    return XPlane::default_instance();
  }

  static std::vector<Event> EventsOf(const XPlane& plane, absl::string_view line_name) {
    std::vector<Event> events;
    const XPlaneVisitor visitor = tsl::profiler::CreateTfXPlaneVisitor(&plane);
    visitor.ForEachLine([&](const XLineVisitor& line) {
      if (line.Name() != line_name) return;
      line.ForEachEvent([&](const XEventVisitor& event) {
        events.push_back({std::string(event.HasDisplayName() ? event.DisplayName() : event.Name()),
                          event.OffsetPs(), event.DurationPs()});
      });
    });
    return events;
  }

  std::shared_ptr<const CompiledProgram> program_ = MakeProgram();
  Recording recording_;
  tensorflow::profiler::XSpace space_;
};

TEST_F(CorePlanesTest, AStepLastsUntilTheNextOne) {
  recording_.runs = {RunOf(program_, 1, {Core(0)}, 100, 200),
                     RunOf(program_, 2, {Core(0)}, 300, 350)};
  Build({});
  const auto steps = EventsOf(PlaneOf(0), "Steps");
  ASSERT_EQ(steps.size(), 2);
  EXPECT_EQ(steps[0].name, "0");
  EXPECT_EQ(steps[0].begin_ps, 0);
  EXPECT_EQ(steps[0].duration_ps, 199'000);
  EXPECT_EQ(steps[1].name, "1");
  EXPECT_EQ(steps[1].duration_ps, 50'000);
  const auto modules = EventsOf(PlaneOf(0), "XLA Modules");
  ASSERT_EQ(modules.size(), 2);
  EXPECT_TRUE(absl::StartsWith(modules[0].name, "step("));
  EXPECT_EQ(modules[0].duration_ps, 100'000);
}

TEST_F(CorePlanesTest, OpsTellWhatXprofNeeds) {
  recording_.runs = {RunOf(program_, 1, {Core(1)}, 100, 200)};
  Build({DotOf(recording_.runs[0], 10'000, 50'000)});
  const XPlane& plane = PlaneOf(1);
  const auto ops = EventsOf(plane, "XLA Ops");
  ASSERT_EQ(ops.size(), 1);
  EXPECT_EQ(ops[0].name, "dot");
  EXPECT_EQ(ops[0].begin_ps, 10'000);
  EXPECT_EQ(ops[0].duration_ps, 40'000);
  const XPlaneVisitor visitor = tsl::profiler::CreateTfXPlaneVisitor(&plane);
  bool found = false;
  visitor.ForEachLine([&](const XLineVisitor& line) {
    if (line.Name() != "XLA Ops") return;
    line.ForEachEvent([&](const XEventVisitor& event) {
      found = true;
      const auto metadata = event.Metadata();
      EXPECT_EQ(metadata.GetStat(StatType::kHloCategory)->StrOrRefValue(), "dot");
      EXPECT_EQ(metadata.GetStat(StatType::kTfOp)->StrOrRefValue(), "dense/MatMul:MatMul");
      EXPECT_EQ(metadata.GetStat(StatType::kSourceInfo)->StrOrRefValue(), "model.py:7");
      EXPECT_EQ(metadata.GetStat(StatType::kFlops)->IntOrUintValue(), 2 * 64 * 32 * 16);
      EXPECT_EQ(metadata.GetStat(StatType::kBytesAccessed)->IntOrUintValue(),
                4 * (64 * 32 + 32 * 16 + 64 * 16));
      EXPECT_GT(metadata.GetStat(StatType::kSymbolId)->IntOrUintValue(), 0);
      EXPECT_EQ(metadata.GetStat(StatType::kProgramId)->IntOrUintValue(),
                program_->executable->module().unique_id());
    });
  });
  EXPECT_TRUE(found);
  EXPECT_EQ(visitor.GetStat(StatType::kDevCapPeakTeraflopsPerSecond)->DoubleValue(), 1);
  EXPECT_EQ(visitor.GetStat(StatType::kDevCapPeakHbmBwGigabytesPerSecond)->DoubleValue(), 2);
}

TEST_F(CorePlanesTest, AnOpEndsWithItsRun) {
  recording_.runs = {RunOf(program_, 1, {Core(0)}, 100, 200)};
  Build({DotOf(recording_.runs[0], 50'000, 130'000)});
  const auto ops = EventsOf(PlaneOf(0), "XLA Ops");
  ASSERT_EQ(ops.size(), 1);
  EXPECT_EQ(ops[0].begin_ps, 50'000);
  EXPECT_EQ(ops[0].duration_ps, 50'000);
}

TEST_F(CorePlanesTest, AnOpWithoutPartsEndsWhereAnotherThreadWentOn) {
  recording_.runs = {RunOf(program_, 1, {Core(0)}, 100, 200)};
  Build({DotOf(recording_.runs[0], 10'000, 50'000), DotOf(recording_.runs[0], 40'000, 45'000)});
  const auto ops = EventsOf(PlaneOf(0), "XLA Ops");
  ASSERT_EQ(ops.size(), 2);
  EXPECT_EQ(ops[0].begin_ps, 10'000);
  EXPECT_EQ(ops[0].duration_ps, 30'000);
  EXPECT_EQ(ops[1].duration_ps, 5'000);
}

TEST_F(CorePlanesTest, AnOpBelongsToTheProgramThatRanThen) {
  recording_.runs = {RunOf(program_, 1, {Core(0)}, 100, 200),
                     RunOf(MakeProgram(), 1, {Core(0)}, 300, 400)};
  Build({DotOf(recording_.runs[0], 10'000, 50'000), DotOf(recording_.runs[1], 210'000, 250'000)});
  const auto ops = EventsOf(PlaneOf(0), "XLA Ops");
  ASSERT_EQ(ops.size(), 2);
  EXPECT_EQ(ops[0].begin_ps, 10'000);
  EXPECT_EQ(ops[1].begin_ps, 210'000);
}

TEST_F(CorePlanesTest, OneRunForSeveralCoresIsOnAllOfThem) {
  recording_.runs = {RunOf(program_, 1, {Core(2), Core(3)}, 100, 200)};
  Build({DotOf(recording_.runs[0], 10'000, 50'000)});
  EXPECT_EQ(space_.planes_size(), 2);
  for (int core : {2, 3}) {
    const XPlane& plane = PlaneOf(core);
    ASSERT_EQ(EventsOf(plane, "XLA Ops").size(), 1);
    const XPlaneVisitor visitor = tsl::profiler::CreateTfXPlaneVisitor(&plane);
    visitor.ForEachLine([&](const XLineVisitor& line) {
      line.ForEachEvent([&](const XEventVisitor& event) {
        if (line.Name() == "XLA Ops") {
          // Its share.
          EXPECT_EQ(event.Metadata().GetStat(StatType::kFlops)->IntOrUintValue(), 64 * 32 * 16);
        } else if (line.Name() == "XLA Modules") {
          std::map<std::string, std::string> stats;
          event.ForEachStat([&](const tsl::profiler::XStatVisitor& stat) {
            stats[std::string(stat.Name())] = stat.ToString();
          });
          EXPECT_EQ(stats["one_run_for_cores"], "2, 3");
        }
      });
    });
  }
}

TEST_F(CorePlanesTest, TheSharedUpdateBeginsWithAnAllReduce) {
  recording_.runs = {RunOf(program_, 1, {Core(0), Core(1)}, 100, 200)};
  recording_.runs[0].combined_until = kNow + 160;
  Build({DotOf(recording_.runs[0], 70'000, 80'000)});
  for (int core : {0, 1}) {
    const auto ops = EventsOf(PlaneOf(core), "XLA Ops");
    ASSERT_EQ(ops.size(), 2);
    EXPECT_EQ(ops[0].name, "all-reduce");
    EXPECT_EQ(ops[0].begin_ps, 0);
    EXPECT_EQ(ops[0].duration_ps, 60'000);
    EXPECT_EQ(ops[1].name, "dot");
  }
}

TEST_F(CorePlanesTest, WaitsNameTheCore) {
  recording_.runs = {RunOf(program_, 1, {Core(0)}, 100, 200),
                     RunOf(program_, 1, {Core(1)}, 100, 200)};
  for (const auto& [core, begin] : {std::pair(0, 120), std::pair(1, 150)}) {
    RecordedWait wait;
    wait.name = "all-reduce";
    wait.meeting = "sum";
    wait.in_run = true;
    wait.run_id = RunId(1);
    wait.core = Core(core);
    wait.begin = kNow + begin;
    wait.end = kNow + 160;
    recording_.waits.push_back(wait);
  }
  Build({});
  const auto waits = EventsOf(PlaneOf(0), "Waits");
  ASSERT_EQ(waits.size(), 1);
  EXPECT_EQ(waits[0].name, "all-reduce: core 1");
  EXPECT_EQ(waits[0].begin_ps, 20'000);
  EXPECT_EQ(waits[0].duration_ps, 30'000);
  EXPECT_TRUE(EventsOf(PlaneOf(1), "Waits").empty());
}

}  // namespace
}  // namespace tf_tpu_ext
