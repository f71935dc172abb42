#include "cc/runtime/step.h"

#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "cc/abi/xla/collectives_wait.h"
#include "cc/base/compute_pool.h"
#include "cc/check/step_check.h"
#include "cc/pods/host_links.h"
#include "cc/runtime/collective_table.h"
#include "cc/runtime/launch_transfers.h"
#include "cc/runtime/shared_update.h"
#include "cc/transfer/host_calls.h"
#include "cc/transfer/host_order.h"

namespace tf_tpu_ext {
namespace {

std::set<ArgumentNumber> VariablesOf(const StepArguments& arguments) {
  std::set<ArgumentNumber> variables;
  if (arguments.variables == nullptr) return variables;
  for (ArgumentNumber argument : arguments.values.numbers()) {
    if ((*arguments.variables)[argument].get() != nullptr) variables.insert(argument);
  }
  return variables;
}

}  // namespace

std::shared_ptr<Step> Step::Create(const LaunchServices& services, LaunchId launch_id,
                                   std::shared_ptr<Program> program, StepCores cores,
                                   std::shared_ptr<HostLinks> links, Done done) {
  std::shared_ptr<Step> step(new Step(services, launch_id, std::move(program), std::move(cores),
                                      std::move(links), std::move(done)));
  // Before anybody else knows the step, because Fail must find all of them.
  step->PrepareHostCalls();
  step->PrepareChecks();
  return step;
}

Step::Step(const LaunchServices& services, LaunchId launch_id, std::shared_ptr<Program> program,
           StepCores cores, std::shared_ptr<HostLinks> links, Done done)
    : services_(services),
      launch_id_(launch_id),
      program_(std::move(program)),
      cores_(std::move(cores)),
      links_(std::move(links)),
      times_(services_.first_launches == nullptr
                 ? nullptr
                 : services_.first_launches->Begin(program_->compiled().id, run_id())),
      done_(std::move(done)) {}

Step::~Step() = default;

void Step::PrepareHostCalls() {
  for (Slot slot : cores_.numbers()) {
    const std::shared_ptr<HostFunctions>& functions = cores_[slot].program->host_functions();
    if (functions == nullptr) continue;
    host_calls_.resize(cores_.size());
    host_calls_[slot] = std::make_shared<HostCalls>(
        functions, slot.value(), services_.host_threads, services_.wait_monitor,
        [weak = weak_from_this(), slot](const absl::Status& status) {
          if (std::shared_ptr<Step> step = weak.lock()) step->Fail(step->Explained(slot, status));
        });
    cores_[slot].context.host_calls = host_calls_[slot].get();
  }
}

void Step::PrepareChecks() {
  if (services_.findings == nullptr) return;
  std::map<const Program*, StepCheck*> of_programs;
  for (StepCore& core : cores_) {
    if (core.program->compiled().probes == nullptr) continue;
    StepCheck*& check = of_programs[core.program.get()];
    if (check == nullptr) {
      checks_.push_back(std::make_unique<StepCheck>(
          core.program->shared_compiled(), VariablesOf(core.arguments), services_.findings));
      check = checks_.back().get();
    }
    core.context.check = check;
    if (host_order_ == nullptr) {
      host_order_ = std::make_unique<HostOrder>(services_.findings->seed(), check->step());
    }
    core.context.host_order = host_order_.get();
  }
}

// Reads the current values, because other steps may have changed them since the ops found the
// variables.
void Step::ReadVariables() {
  for (StepCore& core : cores_) {
    StepArguments& arguments = core.arguments;
    if (arguments.variables == nullptr) continue;
    for (ArgumentNumber argument : arguments.values.numbers()) {
      tensorflow::Var* variable = (*arguments.variables)[argument].get();
      if (variable == nullptr) continue;
      tensorflow::tf_shared_lock lock(*variable->mu());
      arguments.values[argument] = *variable->tensor();
    }
  }
}

void Step::Start() {
  ReadVariables();
  std::unique_ptr<Execution> execution =
      ChooseExecution(program_, &cores_, *services_.compute_pool, [this] { return Commit(); });
  if (execution != nullptr) return StartRuns(std::move(execution));
  // No thread waits for the compiler.
  services_.run_long([self = shared_from_this()] { self->CompileAlone(); });
}

void Step::CompileAlone() {
  absl::StatusOr<std::shared_ptr<Program>> alone = program_->Alone();
  if (alone.ok()) return StartRuns(MakeSlotExecution(&cores_, *std::move(alone)));
  RunFailed(alone.status());
  Release();
}

void Step::StartRuns(std::unique_ptr<Execution> execution) {
  execution_ = std::move(execution);
  const int runs = execution_->num_runs();
  outputs_.resize(runs);
  bool failed;
  {
    absl::MutexLock lock(&mutex_);
    failed = !status_.ok();
    // For all runs before the first one starts, because it may end at once. A failure from now on
    // finds runs to stop.
    if (!failed) holds_ += runs;
  }
  if (failed) return Release();
  const bool waits = execution_->program()->compiled().waits;
  // Whether to run one after another on this thread. Not if they wait, because the first would end
  // only with the last.
  const bool at_once = !waits && runs * execution_->program()->typical_run() < kWorthAThread;
  // One thread per run is fastest as long as no thread stays idle.
  const int threads = services_.compute_pool->NumThreads();
  const int on_one_thread = at_once ? runs : waits ? 0 : runs / threads * threads;
  // Before the runs start, because a kernel checks how many cores are running when it decides
  // whether to use helper threads.
  services_.compute_pool->AddRuns(runs);
  for (int i = 1; i < runs; ++i) {
    if (at_once) {
      StartRun(StepRun(i), i < on_one_thread);
    } else {
      services_.compute_pool->Schedule([self = shared_from_this(), i, on_one_thread] {
        self->StartRun(StepRun(i), i < on_one_thread);
      });
    }
  }
  // The caller's thread is as good as any other, unless it would wait in a collective for others
  // that need this thread to get there.
  const auto start_first = [self = shared_from_this(), on_one_thread] {
    self->StartRun(StepRun(0), 0 < on_one_thread);
    self->Release();
  };
  if (kCollectivesWait && waits) {
    services_.compute_pool->Schedule(start_first);
  } else {
    start_first();
  }
}

void Step::StartRun(StepRun run, bool on_one_thread) {
  RunOptions options;
  options.on_one_thread = on_one_thread;
  const size_t timed = times_ == nullptr ? 0 : times_->BeginRun(CoresOf(run));
  execution_->Start(
      run, std::move(options),
      [self = shared_from_this(), run, timed](const absl::Status& status, Outputs outputs) {
        self->RunEnded(run, timed, status, std::move(outputs));
      });
}

std::vector<Core> Step::CoresOf(StepRun run) const {
  std::vector<Core> cores;
  const int end = execution_->FirstSlotOf(StepRun(run.value() + 1)).value();
  for (int slot = execution_->FirstSlotOf(run).value(); slot < end; ++slot) {
    cores.push_back(cores_[Slot(slot)].context.core);
  }
  return cores;
}

void Step::RunEnded(StepRun run, size_t timed, const absl::Status& status, Outputs outputs) {
  if (times_ != nullptr) times_->EndRun(timed);
  services_.compute_pool->AddRuns(-1);
  const Slot slot = execution_->FirstSlotOf(run);
  if (status.ok()) {
    outputs_[run] = std::move(outputs);
  } else {
    RunFailed(Explained(slot, status));
  }
  HostCalls* calls = host_calls_.empty() ? nullptr : host_calls_[slot].get();
  if (calls == nullptr) {
    Release();
  } else {
    // A step's effects are complete when it returns, including calls that the program did not wait
    // for. Aborted calls are idle at once.
    calls->WhenIdle([self = shared_from_this()] { self->Release(); });
  }
}

void Step::Fail(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (committed_ || !status_.ok()) return;
    status_ = status;
    ++holds_;
  }
  StopRuns(status);
}

// Unlike Fail, this also works after the step is committed: a run in place that could not begin has
// changed nothing.
void Step::RunFailed(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return;
    status_ = status;
    ++holds_;
  }
  StopRuns(status);
}

// Makes cores return that wait for the failed one or for the host. Their runs end with this status.
// The step is held in the meantime: if it ended first, an abort after its end would be kept for a
// run that nobody finishes any more.
void Step::StopRuns(const absl::Status& status) {
  services_.collectives->Abort(run_id(), status);
  services_.transfers->Abort(launch_id_, status);
  for (const std::shared_ptr<HostCalls>& calls : host_calls_) {
    if (calls != nullptr) calls->Abort(status);
  }
  Release();
}

bool Step::RunsSucceeded() {
  absl::MutexLock lock(&mutex_);
  return status_.ok();
}

bool Step::Commit() {
  absl::MutexLock lock(&mutex_);
  if (!status_.ok()) return false;
  committed_ = true;
  return true;
}

void Step::Release() {
  absl::Status status;
  bool ask_hosts;
  {
    absl::MutexLock lock(&mutex_);
    if (--holds_ > 0) return;
    ask_hosts = status_.ok() && links_ != nullptr && !asked_hosts_ && UpdatesVariables();
    if (ask_hosts) {
      asked_hosts_ = true;
      ++holds_;
    } else {
      // Either the update begins now, or the step has ended. This is decided while holding the
      // lock: a failure either comes before and prevents the update, or comes too late.
      committed_ = true;
      status = status_;
    }
  }
  if (ask_hosts) return AgreeWithHosts();
  if (status.ok() && execution_->program()->compiled().shared_update != nullptr) {
    StartUpdate();
  } else {
    Finish(std::move(status));
  }
}

bool Step::UpdatesVariables() const {
  return absl::c_any_of(cores_,
                        [](const StepCore& core) { return core.arguments.updates_variables; });
}

// A host whose runs have failed says nothing. Its op fails the step, which ends the wait.
void Step::AgreeWithHosts() {
  HostLinks::Messages messages;
  for (Host host : links_->others()) messages[host] = HostMessage(kEndOfRuns, 0);
  links_->Exchange(kEndOfRuns, messages, links_->others(),
                   [self = shared_from_this()](const absl::StatusOr<HostLinks::Messages>& said) {
                     if (!said.ok()) self->RunFailed(said.status());
                     self->Release();
                   });
}

void Step::StartUpdate() {
  ByNumber<StepRun, UpdateReplica> replicas;
  for (StepRun run : outputs_.numbers()) {
    auto replica = execution_->TakeForUpdate(run, std::move(outputs_[run]));
    if (!replica.ok()) return Finish(Explained(execution_->FirstSlotOf(run), replica.status()));
    replicas.Add(*std::move(replica));
  }
  StartSharedUpdate(
      services_, execution_->program(), std::move(replicas),
      [self = shared_from_this()](const absl::Status& status, ByNumber<StepRun, Outputs> outputs) {
        if (!status.ok()) {
          return self->Finish(absl::Status(
              status.code(),
              absl::StrCat("The update of TPU program ", self->program_->compiled().name,
                           " failed: ", status.message())));
        }
        self->outputs_ = std::move(outputs);
        self->Finish(absl::OkStatus());
      });
}

void Step::Finish(absl::Status status) {
  ByNumber<Slot, Outputs> by_slot;
  for (StepRun run : outputs_.numbers()) {
    if (!status.ok()) break;
    auto slots = execution_->OutputsOfSlots(run, std::move(outputs_[run]));
    status = slots.status();
    if (!status.ok()) break;
    for (Outputs& outputs : *slots) by_slot.Add(std::move(outputs));
  }
  if (!status.ok()) by_slot = ByNumber<Slot, Outputs>(cores_.size());
  // Failed runs have already been stopped. Runs before a failed update have succeeded, and filled
  // outfeeds.
  if (!status.ok() && RunsSucceeded()) services_.transfers->Abort(launch_id_, status);
  if (times_ != nullptr) times_->End();
  for (const std::unique_ptr<StepCheck>& check : checks_) check->End();
  if (host_order_ != nullptr) {
    services_.findings->AddRacesOf(host_order_->callers(), checks_.front()->step());
  }
  // No run is left that could meet another one.
  services_.collectives->Finish(run_id());
  Done done;
  {
    absl::MutexLock lock(&mutex_);
    // Not kept, because it refers to the launch, which refers to the step.
    done = std::move(done_);
  }
  done(std::move(status), std::move(by_slot));
}

absl::Status Step::Explained(Slot slot, const absl::Status& status) const {
  const StepCore& core = cores_[slot];
  const std::string replicas = execution_ == nullptr
                                   ? absl::StrCat("Replica ", core.context.replica)
                                   : execution_->DescribeReplicas(slot);
  return absl::Status(status.code(),
                      absl::StrCat(replicas, " of TPU program ", core.program->compiled().name,
                                   " failed on core ", core.context.core, ": ", status.message()));
}

}  // namespace tf_tpu_ext
