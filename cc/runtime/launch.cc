#include "cc/runtime/launch.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/base/core_threads.h"
#include "cc/pods/host_links.h"
#include "cc/profile/launch_context.h"
#include "cc/runtime/collective_table.h"
#include "cc/runtime/launch_transfers.h"
#include "tsl/profiler/lib/connected_traceme.h"
#include "tsl/profiler/lib/context_types.h"
#include "tsl/profiler/lib/traceme_encode.h"
#include "xla/tsl/platform/status.h"

namespace tf_tpu_ext {
namespace {

// The message with which the first host of a pod starts a program that updates variables.
constexpr char kStart[] = "start";

bool IsFirstHost(const HostLinks& links) { return links.shape().host == *links.hosts().begin(); }

void LeadOtherHosts(HostLinks* links) {
  HostLinks::Messages messages;
  for (Host host : links->others()) messages[host] = HostMessage(kStart, 0);
  // If it does not arrive, the other hosts have failed, and this host finds out when it next needs
  // them.
  links->Exchange(kStart, messages, {}, [](const absl::StatusOr<HostLinks::Messages>&) {});
}

}  // namespace

Launch::Launch(const LaunchServices& services, LaunchId launch_id, RunId run_id,
               std::shared_ptr<Program> program, std::function<void()> leave_table)
    : services_(services),
      launch_id_(launch_id),
      run_id_(run_id),
      program_(std::move(program)),
      leave_table_(std::move(leave_table)),
      arrivals_(program_->num_slots()) {}

absl::Status Launch::CheckFits(const Program& program) const {
  const CompiledProgram& mine = program_->compiled();
  const CompiledProgram& other = program.compiled();
  if (mine.cores == other.cores && mine.num_cores_per_replica == other.num_cores_per_replica &&
      program_->num_slots() == program.num_slots()) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat("TPU program ", other.name, " runs on cores [", absl::StrJoin(other.cores, ", "),
                   "]; the other replicas of its step brought program ", mine.name, " for cores [",
                   absl::StrJoin(mine.cores, ", "), "]. Report this with the program."));
}

bool Launch::Awaits(Slot slot) const {
  absl::MutexLock lock(&mutex_);
  return phase_ == Phase::kGathering && arrivals_[slot] == nullptr;
}

bool Launch::Add(Slot slot, CoreArrival arrival) {
  // Attributes what the core runs to the step that this op belongs to.
  const tsl::profiler::TraceMeProducer producer(
      [&] {
        return tsl::profiler::TraceMeEncode(
            "TPU launch", {{"launch", launch_id_.value()}, {"core", arrival.core.value()}});
      },
      tsl::profiler::ContextType::kTpuLaunch, LaunchContext(run_id_, arrival.core));
  arrival.came = NowIfRecording(services_.recorder);
  absl::MutexLock lock(&mutex_);
  arrivals_[slot] = std::make_unique<CoreArrival>(std::move(arrival));
  return ++arrived_ == program_->num_slots();
}

void Launch::Start() {
  // Without the lock: nobody adds an arrival after the last one, and nobody takes one before
  // StartOnFreeCores or Finish.
  std::shared_ptr<HostLinks> links;
  {
    // With the lock: an earlier failure ends the op through which the hosts connect, and a later
    // one ends the links.
    absl::MutexLock lock(&mutex_);
    if (failed_) return;  // Fail finishes the launch
    if (const auto& connect = arrivals_[Slot(0)]->connect) {
      links = connect([pool = services_.compute_pool](std::function<void()> work) {
        pool->Schedule(std::move(work));
      });
      services_.collectives->Connect(run_id_, links);
      links_ = links;
    }
  }
  if (links == nullptr) return StartInOrder();
  WatchHosts(links);
  if (!UpdatesVariables()) return StartInOrder();
  links->Expect(kEndOfRuns, links->others());
  if (IsFirstHost(*links)) return StartInOrder();
  FollowFirstHost(links.get());
}

void Launch::WatchHosts(const std::shared_ptr<HostLinks>& links) {
  if (services_.endpoints == nullptr) return;
  std::shared_ptr<const Endpoints::Lost> listener = services_.endpoints->Listen(
      [weak = weak_from_this(), links](const std::string& task, const absl::Status& lost) {
        const std::shared_ptr<Launch> launch = weak.lock();
        if (launch == nullptr || !links->IsOther(task)) return;
        // Whatever waits for the host gets this error, rather than that of a broken connection.
        links->Abort(lost);
        // Whatever follows the launch in the graph may take long.
        launch->services_.host_threads->Schedule([launch, lost] { launch->Fail(lost); });
      });
  absl::MutexLock lock(&mutex_);
  if (phase_ != Phase::kFinished) listener_ = std::move(listener);
}

// Ensures that two programs take their places in the same order on all hosts.
void Launch::FollowFirstHost(HostLinks* links) {
  {
    absl::MutexLock lock(&mutex_);
    if (failed_) return;  // Fail finishes the launch
    phase_ = Phase::kAsked;
  }
  links->Exchange(kStart, {}, {*links->hosts().begin()},
                  [self = shared_from_this()](const absl::StatusOr<HostLinks::Messages>& said) {
                    if (!said.ok()) return self->Fail(said.status());
                    self->StartInOrder();
                  });
}

bool Launch::UpdatesVariables() const {
  return std::any_of(arrivals_.begin(), arrivals_.end(),
                     [](const auto& arrival) { return arrival->arguments.updates_variables; });
}

void Launch::StartInOrder() {
  if (UpdatesVariables()) {
    std::vector<Core> cores;
    for (const std::unique_ptr<CoreArrival>& arrival : arrivals_) cores.push_back(arrival->core);
    const bool calls_host = std::any_of(
        arrivals_.begin(), arrivals_.end(),
        [](const auto& arrival) { return arrival->program->compiled().has_host_transfers; });
    absl::MutexLock lock(&mutex_);
    if (failed_) return;  // Fail finishes the launch
    phase_ = Phase::kOrdered;
    // With the lock, so that a failure either prevents or gives up the place in the order.
    const CoreOrder::Entrance entrance = services_.core_order->Enter(
        std::move(cores),
        calls_host ? CoreOrder::User::kProgramThatCallsHost : CoreOrder::User::kProgram,
        [self = shared_from_this()] { self->StartOnFreeCores(/*after_others=*/true); });
    place_ = entrance.place;
    if (!entrance.starts) return;
  }
  StartOnFreeCores(/*after_others=*/false);
}

void Launch::StartOnFreeCores(bool after_others) {
  std::shared_ptr<Step> step;
  std::shared_ptr<HostLinks> links;
  {
    absl::MutexLock lock(&mutex_);
    if (failed_) return;  // Fail finishes the launch
    RecordWaits(after_others);
    StepCores cores;
    for (Slot slot : arrivals_.numbers()) {
      CoreArrival& arrival = *arrivals_[slot];
      CoreContext context;
      context.launch_id = launch_id_;
      context.run_id = run_id_;
      context.core = arrival.core;
      context.slot = slot;
      context.replica = program_->compiled().ReplicaOf(slot);
      cores.Add({context, arrival.program, std::move(arrival.arguments)});
    }
    links = links_;
    step = Step::Create(
        services_, launch_id_, program_, std::move(cores), links,
        [self = shared_from_this()](absl::Status status, ByNumber<Slot, Outputs> outputs) {
          self->Finish(std::move(status), std::move(outputs));
        });
    step_ = step;
    phase_ = Phase::kRunning;
  }
  // Without the lock: the step may end, and finish the launch, before this returns.
  if (links != nullptr && UpdatesVariables() && IsFirstHost(*links)) LeadOtherHosts(links.get());
  step->Start();
}

void Launch::RecordWaits(bool after_others) {
  const ProfileTime now = NowIfRecording(services_.recorder);
  if (!now.has_value()) return;
  const CoreArrival* last = nullptr;
  for (const auto& arrival : arrivals_) {
    if (!arrival->came.has_value()) return;  // it arrived before the profile began
    if (last == nullptr || *arrival->came > *last->came) last = arrival.get();
  }
  for (const auto& arrival : arrivals_) {
    RecordedWait wait;
    wait.run_id = run_id_;
    wait.core = arrival->core;
    if (arrival.get() != last) {
      wait.name = "start of the launch";
      wait.waited_for = last->core;
      wait.begin = *arrival->came;
      wait.end = *last->came;
      services_.recorder->Add(wait);
    }
    if (after_others) {
      wait.name = "turn of the launch";
      wait.waited_for.reset();
      wait.begin = *last->came;
      wait.end = *now;
      services_.recorder->Add(std::move(wait));
    }
  }
}

// The table calls this without its lock after creating the launch. By then, the last core may have
// arrived, and the launch may even be over. WaitExpired calls it again if nothing was actually
// waiting.
void Launch::WatchWait() {
  const auto id = services_.wait_monitor->Begin([weak = weak_from_this()](absl::Duration waited) {
    if (std::shared_ptr<Launch> launch = weak.lock()) launch->WaitExpired(waited);
  });
  {
    absl::MutexLock lock(&mutex_);
    if (phase_ != Phase::kFinished) {
      wait_ = id;
      return;
    }
  }
  services_.wait_monitor->End(id);
}

void Launch::WaitExpired(absl::Duration waited) {
  Phase phase;
  {
    absl::MutexLock lock(&mutex_);
    phase = phase_;
  }
  if (phase == Phase::kFinished) return;
  const std::string waits = DescribeWait(phase, waited);
  if (waits.empty()) {
    // A program may run for longer than the limit. Only waiting is an error.
    WatchWait();
    return;
  }
  const char* advice = " Find out why the missing ones do not come, or ";
  if (phase == Phase::kAsked) advice = " Look for what holds its cores, or ";
  if (phase == Phase::kOrdered) advice = " Look for what it waits for, or ";
  Fail(absl::DeadlineExceededError(absl::StrCat(
      "TPU program ", program_name(), ", launch ", launch_id_, ", waited longer than the limit of ",
      absl::FormatDuration(waited), ": ", waits, advice, kRaiseWaitLimit)));
}

std::string Launch::DescribeWait(absl::Duration age) const {
  Phase phase;
  {
    absl::MutexLock lock(&mutex_);
    phase = phase_;
  }
  return phase == Phase::kFinished ? "" : DescribeWait(phase, age);
}

std::string Launch::DescribeWait(Phase phase, absl::Duration age) const {
  std::vector<Core> here, missing;
  {
    absl::MutexLock lock(&mutex_);
    const ByNumber<Slot, Core>& cores = program_->compiled().cores;
    for (Slot slot : arrivals_.numbers()) {
      (arrivals_[slot] != nullptr ? here : missing)
          .push_back(cores.empty() ? Core(0) : cores[slot]);
    }
  }
  if (phase == Phase::kGathering) {
    return absl::StrCat("cores [", absl::StrJoin(here, ", "), "] are ready and wait for cores [",
                        absl::StrJoin(missing, ", "), "].");
  }
  if (phase == Phase::kOrdered) {
    return absl::StrCat("cores [", absl::StrJoin(here, ", "),
                        "] are held by another program or op that updates variables, and has not "
                        "ended.");
  }
  std::string waits = services_.collectives->Describe(run_id_, age);
  if (phase == Phase::kAsked) waits += "which has not started the program there.";
  return waits;
}

void Launch::Fail(const absl::Status& status) {
  std::shared_ptr<Step> step;
  {
    absl::MutexLock lock(&mutex_);
    if (failed_ || phase_ == Phase::kFinished) return;
    step = step_;
    if (step == nullptr) failed_ = true;
  }
  // Without the lock, because the step ends in Finish.
  if (step != nullptr) return step->Fail(status);
  // First, so that no other core arrives and waits for a launch that never starts.
  leave_table_();
  Finish(status, ByNumber<Slot, Outputs>(arrivals_.size()));
}

// Called once, by the step or by the failure that prevented it.
void Launch::Finish(absl::Status status, ByNumber<Slot, Outputs> outputs) {
  WaitMonitor::WaitId wait;
  std::optional<CoreOrder::Place> place;
  std::shared_ptr<HostLinks> links;
  std::shared_ptr<const Endpoints::Lost> listener;  // destroyed without the lock
  {
    absl::MutexLock lock(&mutex_);
    phase_ = Phase::kFinished;
    listener = std::move(listener_);
    step_ = nullptr;
    links = std::move(links_);
    wait = wait_;
    place = place_;
  }
  // Everything that belongs to the launch ends before its ops do, because whatever follows them in
  // the graph may start the next launch, use the same queues, or read the statistics.
  services_.wait_monitor->End(wait);
  leave_table_();
  if (links != nullptr) {
    links->Abort(status.ok() ? absl::CancelledError("The launch has ended.") : status);
    services_.collectives->Finish(run_id_);
  }
  services_.transfers->Finish(launch_id_);
  if (!status.ok() && program_->compiled().takes.any()) DropQueuedForCores(status);
  for (Slot slot : arrivals_.numbers()) {
    if (arrivals_[slot] == nullptr) continue;
    // Moved, because the op, with everything that its callback holds, may be deleted when it
    // returns.
    Program::Done done = std::move(arrivals_[slot]->done);
    done(status, std::move(outputs[slot]));
    // One op reports the error. The others would only repeat it.
    status = tsl::StatusGroup::MakeDerived(status);
  }
  // Last, because variables get their new values only when the ops write them. The next program
  // starts on this thread.
  if (place.has_value()) services_.core_order->Leave(*place);
}

void Launch::DropQueuedForCores(const absl::Status& status) const {
  std::vector<Core> cores = program_->compiled().cores.values();
  std::set<int64_t> steps;
  for (const std::unique_ptr<CoreArrival>& arrival : arrivals_) {
    if (arrival == nullptr) continue;
    steps.insert(arrival->step_id);
    if (program_->compiled().cores.empty()) cores.push_back(arrival->core);
  }
  for (int64_t step : steps) {
    services_.transfers->DropQueued(program_->compiled().takes, cores, step, status);
  }
}

}  // namespace tf_tpu_ext
