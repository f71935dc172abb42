// Tests launches of programs that run on several hosts. The test answers for the other hosts.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/pods/host_links.h"
#include "cc/pods/pod_testing.h"
#include "cc/runtime/collective_table.h"
#include "cc/runtime/core_order.h"
#include "cc/runtime/launch.h"
#include "cc/runtime/launch_fakes.h"
#include "cc/runtime/launch_table.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

// Links through which other hosts say what the test tells them to.
class FakeLinks : public HostLinks {
 public:
  struct Asked {
    Messages sent;
    std::set<Host> from;
    // Empty after it has been called.
    Done done;
  };

  using HostLinks::HostLinks;

  void Exchange(const std::string& name, const Messages& sent, const std::set<Host>& from,
                Done done) override {
    EXPECT_EQ(exchanges.count(name), 0u) << "two exchanges are called " << name;
    Asked& asked = exchanges[name];
    asked.sent = sent;
    asked.from = from;
    if (aborted.has_value()) return done(*aborted);
    if (from.empty()) return done(Messages());
    asked.done = std::move(done);
  }

  void Expect(const std::string& name, const std::set<Host>& from) override {
    expected[name] = from;
  }

  void Abort(const absl::Status& status) override {
    if (aborted.has_value()) return;
    aborted = status;
    for (auto& [name, asked] : exchanges) {
      if (asked.done != nullptr) std::exchange(asked.done, nullptr)(status);
    }
  }

  std::string Describe(absl::Duration age) const override {
    for (const auto& [name, asked] : exchanges) {
      if (asked.done != nullptr && age <= waited) return absl::StrCat("waits in ", name, "; ");
    }
    return "";
  }

  bool Waits(const std::string& name) const {
    const auto found = exchanges.find(name);
    return found != exchanges.end() && found->second.done != nullptr;
  }
  // Whether a message of this kind, without data, has been sent to the host.
  bool HasSent(const std::string& name, Host host) const {
    const auto found = exchanges.find(name);
    if (found == exchanges.end() || found->second.sent.count(host) == 0) return false;
    return found->second.sent.at(host).Check(name, 0, "the host").ok();
  }

  void Answer(const std::string& name) {
    Asked& asked = exchanges.at(name);
    Messages messages;
    for (Host host : asked.from) messages[host] = HostMessage(name, 0);
    std::exchange(asked.done, nullptr)(std::move(messages));
  }
  void Fail(const std::string& name, const absl::Status& status) {
    std::exchange(exchanges.at(name).done, nullptr)(status);
  }

  std::map<std::string, Asked> exchanges;
  std::map<std::string, std::set<Host>> expected;
  std::optional<absl::Status> aborted;
  // How long exchanges have waited.
  absl::Duration waited = absl::InfiniteDuration();
};

class PodLaunchTest : public ::testing::Test {
 protected:
  // A launch and its outcome.
  struct Launched {
    std::shared_ptr<FakeProgram> program;
    std::shared_ptr<FakeLinks> links;
    std::shared_ptr<Launch> launch;
    std::optional<absl::Status> status;
    Outputs outputs;
  };

  PodLaunchTest() : table_(Services()) {}

  LaunchServices Services() {
    LaunchServices services;
    services.collectives = &collectives_;
    services.wait_monitor = &monitor_;
    services.core_order = &order_;
    services.compute_pool = &pool_;
    services.transfers = &transfers_;
    services.run_locking = [](const std::function<void()>& work) { work(); };
    return services;
  }

  // Starts a launch on core 0, this host's only core, of a program that runs on these hosts of a
  // pod.
  std::unique_ptr<Launched> Start(int host, bool updates_variables, int64_t launch_id = 7,
                                  const std::set<Host>& hosts = {Host(0), Host(1), Host(2)}) {
    CompiledProgram compiled;
    compiled.name = "train";
    compiled.cores = {Core(0)};
    auto launched = std::make_unique<Launched>();
    launched->program = std::make_shared<FakeProgram>(std::move(compiled));
    launched->links = std::make_shared<FakeLinks>(MakePod(3, 1, host), hosts);
    CoreArrival arrival;
    arrival.core = Core(0);
    arrival.program = launched->program;
    arrival.arguments.updates_variables = updates_variables;
    arrival.connect = [links = launched->links](const auto& schedule) {
      int scheduled = 0;
      schedule([&scheduled] { ++scheduled; });
      EXPECT_EQ(scheduled, 1);
      return links;
    };
    arrival.done = [of = launched.get()](absl::Status status, Outputs outputs) {
      EXPECT_FALSE(of->status.has_value()) << "ended twice";
      of->status = std::move(status);
      of->outputs = std::move(outputs);
    };
    const absl::Status arrived = table_.Arrive(
        LaunchId(launch_id), std::move(arrival),
        [of = launched.get()](const std::shared_ptr<Launch>& joined) { of->launch = joined; });
    EXPECT_TRUE(arrived.ok()) << arrived;
    return launched;
  }

  FakePool pool_;
  FakeMonitor monitor_;
  FakeTransfers transfers_;
  CollectiveTable collectives_;
  CoreOrder order_;
  LaunchTable table_;
  // Called while the launch gets its links.
};

TEST_F(PodLaunchTest, TheFirstHostStartsAndTellsTheOthers) {
  const auto first = Start(0, /*updates_variables=*/true);
  EXPECT_EQ(first->program->runs.size(), 1u);
  EXPECT_TRUE(first->links->HasSent("start", Host(1)));
  EXPECT_TRUE(first->links->HasSent("start", Host(2)));
  EXPECT_TRUE(first->links->exchanges["start"].from.empty());
  first->program->runs[0].End({});
  first->links->Answer("end");
  EXPECT_EQ(first->status, absl::OkStatus());
}

TEST_F(PodLaunchTest, AnotherHostStartsWhenTheFirstSaysSo) {
  const auto second = Start(1, /*updates_variables=*/true);
  EXPECT_TRUE(second->program->runs.empty());
  ASSERT_TRUE(second->links->Waits("start"));
  EXPECT_EQ(second->links->exchanges["start"].from, std::set<Host>{Host(0)});
  EXPECT_TRUE(second->links->exchanges["start"].sent.empty());
  second->links->Answer("start");
  ASSERT_EQ(second->program->runs.size(), 1u);
  second->program->runs[0].End({FloatTensor({3})});
  second->links->Answer("end");
  EXPECT_EQ(second->status, absl::OkStatus());
  EXPECT_EQ(FloatsOf(second->outputs[OutputNumber(0)]), std::vector<float>{3});
}

// A program need not use the pod's first host.
TEST_F(PodLaunchTest, TheFirstHostIsTheFirstOfTheProgram) {
  const std::set<Host> hosts = {Host(1), Host(2)};
  const auto first = Start(1, /*updates_variables=*/true, 7, hosts);
  EXPECT_EQ(first->program->runs.size(), 1u);
  EXPECT_EQ(first->links->exchanges["start"].sent.size(), 1u);
  EXPECT_TRUE(first->links->HasSent("start", Host(2)));
  first->launch->Fail(absl::CancelledError("over"));
  first->program->runs[0].End({});
  EXPECT_EQ(first->status, absl::CancelledError("over"));
}

TEST_F(PodLaunchTest, WithoutVariablesNobodyAsks) {
  for (int host : {0, 1}) {
    const auto launched = Start(host, /*updates_variables=*/false);
    ASSERT_EQ(launched->program->runs.size(), 1u);
    launched->program->runs[0].End({});
    EXPECT_EQ(launched->status, absl::OkStatus());
    EXPECT_TRUE(launched->links->exchanges.empty() && launched->links->expected.empty());
  }
}

// Otherwise, two programs could take turns in a different order on each host.
TEST_F(PodLaunchTest, TheFirstHostTellsTheOthersWhenItsCoresAreFree) {
  const auto first = Start(0, /*updates_variables=*/true, 1);
  const auto second = Start(0, /*updates_variables=*/true, 2);
  EXPECT_EQ(first->program->runs.size(), 1u);
  EXPECT_TRUE(second->program->runs.empty());
  EXPECT_FALSE(second->links->HasSent("start", Host(1)));
  first->program->runs[0].End({});
  EXPECT_TRUE(second->program->runs.empty());
  first->links->Answer("end");
  EXPECT_EQ(first->status, absl::OkStatus());
  ASSERT_EQ(second->program->runs.size(), 1u);
  EXPECT_TRUE(second->links->HasSent("start", Host(1)));
  second->program->runs[0].End({});
  second->links->Answer("end");
  EXPECT_EQ(second->status, absl::OkStatus());
}

// A host that waits for the first one does not hold cores, which the first host's earlier programs
// may need.
TEST_F(PodLaunchTest, AHostThatAsksLetsOthersGoFirst) {
  const auto asks = Start(1, /*updates_variables=*/true, 1);
  const auto other = Start(1, /*updates_variables=*/true, 2);
  other->links->Answer("start");
  ASSERT_EQ(other->program->runs.size(), 1u);
  asks->links->Answer("start");
  EXPECT_TRUE(asks->program->runs.empty());
  other->program->runs[0].End({});
  other->links->Answer("end");
  EXPECT_EQ(other->status, absl::OkStatus());
  ASSERT_EQ(asks->program->runs.size(), 1u);
  asks->program->runs[0].End({});
  asks->links->Answer("end");
  EXPECT_EQ(asks->status, absl::OkStatus());
}

TEST_F(PodLaunchTest, OpsEndWhenAllHostsSayThatTheirsDo) {
  const auto first = Start(0, /*updates_variables=*/true);
  const std::set<Host> others = {Host(1), Host(2)};
  EXPECT_EQ(first->links->exchanges.count("end"), 0u);
  EXPECT_EQ(first->links->expected["end"], others);
  first->program->runs[0].End({FloatTensor({3})});
  EXPECT_FALSE(first->status.has_value());
  EXPECT_TRUE(first->links->HasSent("end", Host(1)));
  EXPECT_TRUE(first->links->HasSent("end", Host(2)));
  EXPECT_EQ(first->links->exchanges["end"].from, others);
  first->links->Answer("end");
  EXPECT_EQ(first->status, absl::OkStatus());
  EXPECT_EQ(FloatsOf(first->outputs[OutputNumber(0)]), std::vector<float>{3});
  // The links ended with the launch, and nothing waits any more.
  EXPECT_TRUE(first->links->aborted.has_value());
  EXPECT_EQ(monitor_.num_waits(), 0);
}

TEST_F(PodLaunchTest, AHostWhoseRunFailsDoesNotSayThatItEndsWell) {
  const auto first = Start(0, /*updates_variables=*/true);
  first->program->runs[0].Fail(absl::ResourceExhaustedError("no memory"));
  ASSERT_TRUE(first->status.has_value());
  EXPECT_TRUE(absl::IsResourceExhausted(*first->status)) << *first->status;
  EXPECT_EQ(first->links->exchanges.count("end"), 0u);
  ASSERT_TRUE(first->links->aborted.has_value());
  EXPECT_TRUE(absl::IsResourceExhausted(*first->links->aborted)) << *first->links->aborted;
}

TEST_F(PodLaunchTest, LinksThatFailAtTheEndFailTheLaunch) {
  const auto first = Start(0, /*updates_variables=*/true);
  first->program->runs[0].End({FloatTensor({3})});
  EXPECT_FALSE(first->status.has_value());
  first->links->Fail("end", absl::UnavailableError("task 1 sent nothing"));
  EXPECT_EQ(first->status, absl::UnavailableError("task 1 sent nothing"));
  EXPECT_TRUE(first->outputs.empty());
  // Its cores are free again.
  const auto next = Start(0, /*updates_variables=*/true, 8);
  EXPECT_EQ(next->program->runs.size(), 1u);
  next->program->runs[0].Fail(absl::CancelledError("over"));
}

TEST_F(PodLaunchTest, LinksThatFailAtTheStartFailTheLaunch) {
  const auto second = Start(1, /*updates_variables=*/true);
  second->links->Fail("start", absl::UnavailableError("task 0 sent nothing"));
  EXPECT_EQ(second->status, absl::UnavailableError("task 0 sent nothing"));
  EXPECT_TRUE(second->program->runs.empty());
  EXPECT_EQ(monitor_.num_waits(), 0);
}

TEST_F(PodLaunchTest, ACancellationEndsALaunchThatAsks) {
  const auto second = Start(1, /*updates_variables=*/true);
  second->launch->Fail(absl::CancelledError("cancelled"));
  EXPECT_EQ(second->status, absl::CancelledError("cancelled"));
  EXPECT_EQ(second->links->aborted, absl::CancelledError("cancelled"));
  EXPECT_TRUE(second->program->runs.empty());
  EXPECT_EQ(monitor_.num_waits(), 0);
  // It has not taken another launch's place.
  const auto next = Start(1, /*updates_variables=*/true, 8);
  next->links->Answer("start");
  ASSERT_EQ(next->program->runs.size(), 1u);
  next->program->runs[0].End({});
  next->links->Answer("end");
  EXPECT_EQ(next->status, absl::OkStatus());
}

TEST_F(PodLaunchTest, ACancellationEndsALaunchThatWaitsForTheOthersToEnd) {
  const auto first = Start(0, /*updates_variables=*/true);
  first->program->runs[0].End({FloatTensor({3})});
  EXPECT_FALSE(first->status.has_value());
  first->launch->Fail(absl::CancelledError("cancelled"));
  EXPECT_EQ(first->status, absl::CancelledError("cancelled"));
  EXPECT_TRUE(first->outputs.empty());
  EXPECT_EQ(first->links->aborted, absl::CancelledError("cancelled"));
}

TEST_F(PodLaunchTest, CollectivesOfTheRunMeetOtherHosts) {
  const auto first = Start(0, /*updates_variables=*/false);
  ASSERT_EQ(first->program->runs.size(), 1u);
  FakeProgram::Run& run = first->program->runs[0];
  const float sent = 1;
  CollectiveParticipant participant;
  participant.rank = Rank(0);
  participant.elements = 1;
  participant.send = {&sent};
  participant.send_bytes = sizeof(sent);
  participant.done = [&run](const absl::Status& status) { run.Fail(status); };
  collectives_.Arrive({run.core.run_id, 1, false, {Core(0), Core(2)}}, 2, "all-gather",
                      std::move(participant), [](auto) { return absl::OkStatus(); });
  ASSERT_EQ(first->links->exchanges.size(), 1u);
  EXPECT_EQ(first->links->exchanges.begin()->second.from, std::set<Host>{Host(2)});
  // When the launch fails, everything that waits for other hosts ends.
  EXPECT_FALSE(first->status.has_value());
  first->launch->Fail(absl::CancelledError("cancelled"));
  EXPECT_EQ(first->status, absl::CancelledError("cancelled"));
}

TEST_F(PodLaunchTest, TheRunForgetsItsLinksWhenTheLaunchEnds) {
  const auto first = Start(0, /*updates_variables=*/false);
  const RunId run_id = first->program->runs[0].core.run_id;
  first->program->runs[0].End({});
  ASSERT_TRUE(first->links->aborted.has_value());
  // Now the key belongs to this host alone.
  std::optional<absl::Status> met;
  CollectiveParticipant alone;
  alone.send = {nullptr};
  alone.done = [&met](absl::Status status) { met = std::move(status); };
  collectives_.Arrive({run_id, 1, false, {Core(2)}}, 1, "all-gather", std::move(alone),
                      [](auto) { return absl::OkStatus(); });
  EXPECT_EQ(met, absl::OkStatus());
  EXPECT_TRUE(first->links->exchanges.empty());
}

TEST_F(PodLaunchTest, ReportsThatTheFirstHostDoesNotStart) {
  const auto second = Start(1, /*updates_variables=*/true);
  monitor_.Expire();
  ASSERT_TRUE(second->status.has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded(*second->status)) << *second->status;
  for (const char* part : {"waits in start", "has not started the program there"}) {
    EXPECT_TRUE(absl::StrContains(second->status->message(), part)) << *second->status;
  }
}

TEST_F(PodLaunchTest, ReportsWhichHostDoesNotEnd) {
  const auto first = Start(0, /*updates_variables=*/true);
  first->program->runs[0].End({});
  // Only the launch is that old. The other hosts have not made it wait that long.
  first->links->waited = absl::ZeroDuration();
  monitor_.Expire();
  EXPECT_FALSE(first->status.has_value());
  first->links->waited = absl::InfiniteDuration();
  monitor_.Expire();
  ASSERT_TRUE(first->status.has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded(*first->status)) << *first->status;
  EXPECT_TRUE(absl::StrContains(first->status->message(), "waits in end")) << *first->status;
}

}  // namespace
}  // namespace tf_tpu_ext
