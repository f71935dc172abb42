#include "cc/base/run_scope.h"

#include <functional>
#include <memory>
#include <optional>

#include "cc/abi/xla/thunks_name_run.h"
#include "gtest/gtest.h"
#include "tsl/profiler/lib/profiler_session.h"
#include "xla/tsl/profiler/utils/tf_xplane_visitor.h"
#include "xla/tsl/profiler/utils/xplane_schema.h"
#include "xla/tsl/profiler/utils/xplane_visitor.h"

namespace tf_tpu_ext {
namespace {

int CountScopes(const std::function<void()>& work) {
  const std::unique_ptr<tsl::ProfilerSession> session =
      tsl::ProfilerSession::Create(tsl::ProfilerSession::DefaultOptions());
  work();
  tensorflow::profiler::XSpace space;
  EXPECT_TRUE(session->CollectData(&space).ok());
  int count = 0;
  for (const tensorflow::profiler::XPlane& plane : space.planes()) {
    const auto visitor = tsl::profiler::CreateTfXPlaneVisitor(&plane);
    visitor.ForEachLine([&](const tsl::profiler::XLineVisitor& line) {
      line.ForEachEvent([&](const tsl::profiler::XEventVisitor& event) {
        if (event.Name() != RunScope::kEvent) return;
        ++count;
        EXPECT_EQ(event.GetStat(tsl::profiler::StatType::kRunId)->IntOrUintValue(), 7);
        EXPECT_EQ(event.GetStat(tsl::profiler::StatType::kDeviceOrdinal)->IntOrUintValue(), 3);
      });
    });
  }
  return count;
}

TEST(RunScopeTest, WorkForOtherThreadsHasItToo) {
  const int scopes = CountScopes([] {
    std::function<void()> work;
    {
      const RunScope scope(RunId(7), Core(3));
      work = RunScope::Extend([] {});
    }
    work();
    RunScope::Extend([] {})();
  });
  EXPECT_EQ(scopes, kThunksNameRun ? 0 : 2);
}

TEST(RunScopeTest, MayEndBeforeTheProfile) {
  std::optional<RunScope> outer, inner;
  const int scopes = CountScopes([&] {
    outer.emplace(RunId(7), Core(3));
    inner.emplace(RunId(7), Core(3));
    RunScope::EndInnermost();
  });
  inner.reset();
  outer.reset();
  RunScope::EndInnermost();
  EXPECT_EQ(scopes, kThunksNameRun ? 0 : 1);
}

TEST(RunScopeTest, WithoutAProfileWorkIsNotWrapped) {
  const RunScope scope(RunId(7), Core(3));
  bool worked = false;
  RunScope::Extend([&] { worked = true; })();
  EXPECT_TRUE(worked);
}

}  // namespace
}  // namespace tf_tpu_ext
