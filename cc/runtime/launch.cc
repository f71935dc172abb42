#include "cc/runtime/launch.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "cc/base/compute_pool.h"
#include "cc/runtime/collectives.h"
#include "cc/runtime/core_order.h"
#include "cc/runtime/run_in_place.h"
#include "cc/runtime/step_transfers.h"
#include "cc/transfer/host_calls.h"
#include "tensorflow/core/platform/env.h"
#include "xla/tsl/platform/status.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

int64_t NextRunId() {
  static std::atomic<int64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Launch::Launch(std::shared_ptr<Program> program, int64_t launch_id)
    : program_(std::move(program)),
      launch_id_(launch_id),
      run_id_(NextRunId()),
      arrivals_(program_->num_slots()),
      outputs_(program_->num_slots()) {}

bool Launch::Awaits(int slot) const {
  absl::MutexLock lock(&mutex_);
  return !started_ && !finished_ && arrivals_[slot] == nullptr;
}

absl::Status Launch::CheckFits(const Program& program) const {
  const CompiledProgram& mine = program_->compiled();
  const CompiledProgram& other = program.compiled();
  if (mine.cores == other.cores && mine.num_cores_per_replica == other.num_cores_per_replica) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat("TPU program ", other.name, " runs on cores [", absl::StrJoin(other.cores, ", "),
                   "]; the other replicas of its step brought program ", mine.name, " for cores [",
                   absl::StrJoin(mine.cores, ", "), "]. Report this with the program."));
}

bool Launch::Add(int slot, CoreArrival arrival) {
  absl::MutexLock lock(&mutex_);
  arrivals_[slot] = std::make_unique<CoreArrival>(std::move(arrival));
  return ++arrived_ == program_->num_slots();
}

void Launch::WatchWait() {
  const auto id = WaitMonitor::Get().Begin([weak = weak_from_this()](absl::Duration waited) {
    if (std::shared_ptr<Launch> launch = weak.lock()) launch->WaitExpired(waited);
  });
  {
    absl::MutexLock lock(&mutex_);
    if (!finished_) {
      wait_ = id;
      return;
    }
  }
  WaitMonitor::Get().End(id);
}

void Launch::WaitExpired(absl::Duration waited) {
  std::vector<int> here, missing;
  bool running, ordered;
  {
    absl::MutexLock lock(&mutex_);
    if (finished_) return;
    running = started_;
    ordered = ordered_;
    const std::vector<int>& cores = program_->compiled().cores;
    for (int slot = 0; slot < program_->num_slots(); ++slot) {
      (arrivals_[slot] != nullptr ? here : missing).push_back(cores.empty() ? 0 : cores[slot]);
    }
  }
  const std::string step =
      absl::StrCat("TPU program ", program_->compiled().name, ", launch ", launch_id_,
                   ", waited longer than the limit of ", absl::FormatDuration(waited), ": ");
  constexpr absl::string_view kRaiseLimit =
      " or raise the limit with tf_tpu_ext.configure(wait_limit_seconds=...).";
  const std::string advice =
      absl::StrCat(" Find out why the missing ones do not come,", kRaiseLimit);
  if (!running && ordered) {
    Fail(absl::DeadlineExceededError(absl::StrCat(
        step, "cores [", absl::StrJoin(here, ", "),
        "] run another program, which updates variables as this one does and has not ended. Look "
        "for what it waits for,",
        kRaiseLimit)));
    return;
  }
  if (!running) {
    Fail(absl::DeadlineExceededError(absl::StrCat(step, "cores [", absl::StrJoin(here, ", "),
                                                  "] are ready and wait for cores [",
                                                  absl::StrJoin(missing, ", "), "].", advice)));
    return;
  }
  // A program may run for longer than the limit; only waiting is an error.
  const std::string waits = GetCollectiveTable().Describe(run_id_, waited);
  if (waits.empty()) {
    WatchWait();
  } else {
    Fail(absl::DeadlineExceededError(absl::StrCat(step, waits, advice)));
  }
}

CoreContext Launch::ContextOf(int slot, const CoreArrival& arrival) const {
  const int cores_per_replica = program_->compiled().num_cores_per_replica;
  CoreContext context;
  context.launch_id = launch_id_;
  context.run_id = run_id_;
  context.core = arrival.core;
  context.slot = slot;
  context.replica = slot / cores_per_replica;
  if (stacked_ != nullptr) context.group_cores = &program_->compiled().cores[slot];
  context.host_calls = host_calls_.empty() ? nullptr : host_calls_[slot].get();
  return context;
}

void Launch::PrepareHostCalls() {
  for (int slot = 0; slot < program_->num_slots(); ++slot) {
    const std::shared_ptr<HostFunctions>& functions = arrivals_[slot]->program->host_functions();
    if (functions == nullptr) continue;
    host_calls_.resize(program_->num_slots());
    host_calls_[slot] = std::make_shared<HostCalls>(
        functions, slot, [weak = weak_from_this(), slot](const absl::Status& status) {
          if (std::shared_ptr<Launch> launch = weak.lock()) {
            launch->Fail(launch->FailureOf(slot, status));
          }
        });
  }
}

bool Launch::UpdatesVariables() const {
  return std::any_of(arrivals_.begin(), arrivals_.end(),
                     [](const auto& arrival) { return arrival->arguments.updates_variables; });
}

void Launch::Start() {
  if (UpdatesVariables()) {
    std::vector<int> cores;
    for (const std::unique_ptr<CoreArrival>& arrival : arrivals_) cores.push_back(arrival->core);
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return;  // Fail came first and finishes the launch
    ordered_ = true;
    if (!CoreOrder::Get().Enter(run_id_, std::move(cores),
                                [self = shared_from_this()] { self->StartOnFreeCores(); })) {
      return;
    }
  }
  StartOnFreeCores();
}

void Launch::ReadVariables() {
  for (const std::unique_ptr<CoreArrival>& arrival : arrivals_) {
    StepArguments& arguments = arrival->arguments;
    if (arguments.variables == nullptr) continue;
    for (size_t i = 0; i < arguments.values.size(); ++i) {
      tensorflow::Var* variable = (*arguments.variables)[i].get();
      if (variable == nullptr) continue;
      tensorflow::tf_shared_lock lock(*variable->mu());
      arguments.values[i] = *variable->tensor();
    }
  }
}

void Launch::StartOnFreeCores() {
  {
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return;  // Fail came first and finishes the launch
    PrepareHostCalls();
    started_ = true;
  }
  ReadVariables();
  const std::shared_ptr<const StackedReplicas>& stacked = program_->compiled().stacked;
  runner_ = program_;
  if (stacked == nullptr) return StartRuns();
  std::vector<int> slots(program_->num_slots());
  std::iota(slots.begin(), slots.end(), 0);
  runner_ = program_->AloneIfBuilt();
  if (runner_ == nullptr && CanRunStacked(*stacked, ArgumentsOf(slots))) {
    runner_ = program_->stacked();
    stacked_ = stacked.get();
  }
  if (runner_ != nullptr) return StartRuns();
  // Nobody's thread waits for the compiler.
  tensorflow::Env::Default()->SchedClosure([self = shared_from_this()] {
    absl::StatusOr<std::shared_ptr<Program>> alone = self->program_->Alone();
    if (!alone.ok()) {
      self->Fail(alone.status());
      return self->Finish();
    }
    self->runner_ = *std::move(alone);
    self->StartRuns();
  });
}

// A replica that was compiled for shapes of its own brings another program.
const std::shared_ptr<Program>& Launch::ProgramOf(int slot) const {
  return runner_ == program_ ? arrivals_[slot]->program : runner_;
}

int Launch::SlotsOfRun() const {
  if (stacked_ != nullptr) return stacked_->group_size;
  return runner_->compiled().core_slices.empty() ? 1 : runner_->compiled().num_cores_per_replica;
}

std::vector<int> Launch::SlotsOf(int run) const {
  std::vector<int> slots(SlotsOfRun());
  std::iota(slots.begin(), slots.end(), run * SlotsOfRun());
  return slots;
}

std::vector<const std::vector<Tensor>*> Launch::ArgumentsOf(absl::Span<const int> slots) const {
  std::vector<const std::vector<Tensor>*> arguments;
  for (int slot : slots) arguments.push_back(&arrivals_[slot]->arguments.values);
  return arguments;
}

void Launch::StartRuns() {
  const int runs = program_->num_slots() / SlotsOfRun();
  {
    absl::MutexLock lock(&mutex_);
    running_ = runs;
  }
  const bool waits = runner_->compiled().waits;
  const bool at_once = !waits && runs * runner_->typical_run() < kWorthAThread;
  // A thread for each run is the fastest way as long as no thread stays without one.
  const int threads = ComputePool::NumThreads();
  const int on_one_thread = at_once ? runs : waits ? 0 : runs / threads * threads;
  auto start = [self = shared_from_this(), on_one_thread](int run) {
    RunOptions options;
    options.on_one_thread = run < on_one_thread;
    if (self->stacked_ != nullptr) {
      self->StartGroup(run, std::move(options));
    } else if (self->SlotsOfRun() > 1) {
      self->StartMergedReplica(run, std::move(options));
    } else {
      self->StartSlot(run, std::move(options));
    }
  };
  ComputePool::AddRuns(runs);
  for (int run = 1; run < runs; ++run) {
    if (at_once) {
      start(run);
    } else {
      ComputePool::Schedule([start, run] { start(run); });
    }
  }
  start(0);
}

void Launch::StartSlot(int slot, RunOptions options) {
  CoreArrival& arrival = *arrivals_[slot];
  const std::shared_ptr<Program>& program = ProgramOf(slot);
  // A thread of the compute pool must not wait for the others.
  if (const auto& overwritten = program->compiled().overwritten_variables;
      !overwritten.empty() && !ComputePool::IsCaller() &&
      MayRunInPlace(overwritten, arrival.arguments.values, {arrival.arguments.variables.get()})) {
    std::vector<Tensor> outputs;
    const absl::Status status = RunInPlace(*program, ContextOf(slot, arrival), overwritten,
                                           {arrival.arguments.variables.get()},
                                           std::move(arrival.arguments.values), &outputs);
    return RunDone({slot}, status, std::move(outputs));
  }
  std::vector<Tensor> arguments;
  if (program->compiled().shared_update != nullptr) {
    arguments = arrival.arguments.values;
  } else {
    arguments = std::move(arrival.arguments.values);
  }
  program->Start(
      ContextOf(slot, arrival), std::move(arguments), std::move(options),
      [self = shared_from_this(), slot](const absl::Status& status, std::vector<Tensor> outputs) {
        self->RunDone({slot}, status, std::move(outputs));
      });
}

void Launch::StartMergedReplica(int replica, RunOptions options) {
  const std::vector<int> slots = SlotsOf(replica);
  const std::shared_ptr<Program>& program = ProgramOf(slots[0]);
  const CompiledProgram& compiled = program->compiled();
  std::vector<Tensor> arguments;
  for (int core = 0; core < compiled.num_cores_per_replica; ++core) {
    const int slot = slots[core];
    const std::vector<int>& numbers = compiled.core_slices[core].arguments;
    std::vector<Tensor>& given = arrivals_[slot]->arguments.values;
    for (size_t i = 0; i < numbers.size() && i < given.size(); ++i) {
      if (numbers[i] >= static_cast<int>(arguments.size())) arguments.resize(numbers[i] + 1);
      arguments[numbers[i]] = std::move(given[i]);
    }
  }
  const CoreContext context = ContextOf(slots[0], *arrivals_[slots[0]]);
  program->Start(
      context, std::move(arguments), std::move(options),
      [self = shared_from_this(), slots](const absl::Status& status, std::vector<Tensor> outputs) {
        self->RunDone(slots, status, std::move(outputs));
      });
}

void Launch::StartGroup(int group, RunOptions options) {
  const std::vector<int> slots = SlotsOf(group);
  absl::StatusOr<std::vector<Tensor>> arguments = StackArguments(*stacked_, ArgumentsOf(slots));
  for (int slot : slots) arrivals_[slot]->arguments.values.clear();
  if (!arguments.ok()) return RunDone(slots, arguments.status(), {});
  if (runner_->compiled().shared_update != nullptr) {
    arrivals_[slots[0]]->arguments.values = *arguments;
  }
  runner_->Start(
      ContextOf(slots[0], *arrivals_[slots[0]]), *std::move(arguments), std::move(options),
      [self = shared_from_this(), slots](const absl::Status& status, std::vector<Tensor> outputs) {
        self->RunDone(slots, status, std::move(outputs));
      });
}

absl::Status Launch::Unstack() {
  for (int group = 0; group < program_->num_slots() / stacked_->group_size; ++group) {
    const std::vector<int> slots = SlotsOf(group);
    auto outputs = UnstackOutputs(*stacked_, outputs_[slots[0]]);
    if (!outputs.ok()) return outputs.status();
    for (size_t i = 0; i < slots.size(); ++i) outputs_[slots[i]] = std::move((*outputs)[i]);
  }
  return absl::OkStatus();
}

absl::Status Launch::FailureOf(int slot, const absl::Status& status) const {
  const CoreContext context = ContextOf(slot, *arrivals_[slot]);
  const std::string replicas = stacked_ == nullptr
                                   ? absl::StrCat("Replica ", context.replica)
                                   : absl::StrCat("One of the replicas ", context.replica, " to ",
                                                  context.replica + stacked_->group_size - 1);
  return absl::Status(
      status.code(),
      absl::StrCat(replicas, " of TPU program ", arrivals_[slot]->program->compiled().name,
                   " failed on core ", context.core, ": ", status.message()));
}

void Launch::RunDone(absl::Span<const int> slots, const absl::Status& status,
                     std::vector<Tensor> outputs) {
  ComputePool::AddRuns(-1);
  const CompiledProgram& compiled = ProgramOf(slots[0])->compiled();
  if (!status.ok()) {
    Fail(FailureOf(slots[0], status));
  } else if (compiled.core_slices.empty()) {
    outputs_[slots[0]] = std::move(outputs);
  } else {
    for (size_t core = 0; core < slots.size(); ++core) {
      for (int number : compiled.core_slices[core].outputs) {
        outputs_[slots[core]].push_back(outputs[number]);
      }
    }
  }
  HostCalls* calls = host_calls_.empty() ? nullptr : host_calls_[slots[0]].get();
  if (calls == nullptr) {
    OneRunLess();
  } else {
    // The effects of a step are complete when it returns.
    calls->WhenIdle([self = shared_from_this()] { self->OneRunLess(); });
  }
}

void Launch::OneRunLess() {
  bool update;
  {
    absl::MutexLock lock(&mutex_);
    if (--running_ > 0) return;
    updating_ = status_.ok() && runner_->compiled().shared_update != nullptr;
    update = updating_;
  }
  if (update) {
    StartUpdate();
  } else {
    Finish();
  }
}

void Launch::StartUpdate() {
  std::vector<UpdateReplica> replicas(program_->num_slots() / SlotsOfRun());
  for (size_t run = 0; run < replicas.size(); ++run) {
    const std::vector<int> slots = SlotsOf(run);
    CoreArrival& first = *arrivals_[slots[0]];
    UpdateReplica& replica = replicas[run];
    replica.context = ContextOf(slots[0], first);
    replica.arguments = std::move(first.arguments.values);
    for (int slot : slots) replica.variables.push_back(arrivals_[slot]->arguments.variables);
    replica.outputs = std::move(outputs_[slots[0]]);
  }
  StartSharedUpdate(runner_, std::move(replicas),
                    [self = shared_from_this()](const absl::Status& status,
                                                std::vector<std::vector<Tensor>> outputs) {
                      if (!status.ok()) {
                        absl::MutexLock lock(&self->mutex_);
                        self->status_ = absl::Status(status.code(),
                                                     absl::StrCat("The update of TPU program ",
                                                                  self->program_->compiled().name,
                                                                  " failed: ", status.message()));
                      }
                      for (size_t run = 0; run < outputs.size(); ++run) {
                        self->outputs_[run * self->SlotsOfRun()] = std::move(outputs[run]);
                      }
                      self->Finish();
                    });
}

void Launch::Fail(const absl::Status& status) {
  bool running;
  {
    absl::MutexLock lock(&mutex_);
    if (finished_ || updating_ || !status_.ok()) return;
    status_ = status;
    running = started_;
  }
  if (running) {
    // The cores that wait for the failed one, or for the host, stop; their runs end with this
    // status.
    GetCollectiveTable().Abort(run_id_, status);
    AbortTransfers(launch_id_, status);
    for (const std::shared_ptr<HostCalls>& calls : host_calls_) {
      if (calls != nullptr) calls->Abort(status);
    }
    return;
  }
  LaunchTable::Get().Remove(this);
  Finish();
}

void Launch::Finish() {
  absl::Status status;
  WaitMonitor::WaitId wait;
  bool ordered;
  {
    absl::MutexLock lock(&mutex_);
    if (finished_) return;
    finished_ = true;
    status = status_;
    wait = wait_;
    ordered = ordered_;
  }
  if (status.ok() && stacked_ != nullptr) status = Unstack();
  WaitMonitor::Get().End(wait);
  GetCollectiveTable().Finish(run_id_);
  FinishTransfers(launch_id_);
  if (!status.ok() && program_->compiled().takes.any()) DropQueuedForCores(status);
  for (int slot = 0; slot < program_->num_slots(); ++slot) {
    if (arrivals_[slot] == nullptr) continue;
    Program::Done done = std::move(arrivals_[slot]->done);
    done(status, std::move(outputs_[slot]));
    // One op tells the error; the others' would only repeat it.
    status = tsl::StatusGroup::MakeDerived(status);
  }
  // The variables have their new values. The next program starts on this thread.
  if (ordered) CoreOrder::Get().Leave(run_id_);
}

void Launch::DropQueuedForCores(const absl::Status& status) const {
  std::vector<int> cores = program_->compiled().cores;
  std::set<int64_t> steps;
  for (const std::unique_ptr<CoreArrival>& arrival : arrivals_) {
    if (arrival == nullptr) continue;
    steps.insert(arrival->step_id);
    if (program_->compiled().cores.empty()) cores.push_back(arrival->core);
  }
  for (int64_t step : steps) DropQueued(program_->compiled().takes, cores, step, status);
}

absl::Status LaunchTable::Arrive(
    int64_t launch_id, CoreArrival arrival,
    const std::function<void(const std::shared_ptr<Launch>&)>& joined) {
  absl::StatusOr<int> slot = arrival.program->SlotOfCore(arrival.core);
  if (!slot.ok()) return slot.status();
  std::shared_ptr<Launch> launch;
  bool created = false, complete;
  {
    absl::MutexLock lock(&mutex_);
    for (const std::shared_ptr<Launch>& waiting : waiting_) {
      // A core that comes twice has begun the next round of a host loop.
      if (waiting->launch_id() == launch_id && waiting->Awaits(*slot)) {
        launch = waiting;
        break;
      }
    }
    if (launch == nullptr) {
      created = true;
      if (auto expected = begun_.find(launch_id); expected != begun_.end()) {
        expected->second = true;
      }
      launch = std::make_shared<Launch>(arrival.program, launch_id);
      waiting_.push_back(launch);
    } else if (absl::Status status = launch->CheckFits(*arrival.program); !status.ok()) {
      return status;
    }
    joined(launch);
    complete = launch->Add(*slot, std::move(arrival));
    if (complete) waiting_.remove(launch);
  }
  if (created) launch->WatchWait();
  if (complete) launch->Start();
  return absl::OkStatus();
}

void LaunchTable::Reject(int64_t launch_id, const absl::Status& status) {
  std::vector<std::shared_ptr<Launch>> rejected;
  {
    absl::MutexLock lock(&mutex_);
    for (const std::shared_ptr<Launch>& launch : waiting_) {
      if (launch->launch_id() == launch_id) rejected.push_back(launch);
    }
  }
  for (const std::shared_ptr<Launch>& launch : rejected) launch->Fail(status);
}

void LaunchTable::Expect(int64_t launch_id) {
  absl::MutexLock lock(&mutex_);
  begun_.emplace(launch_id, false);
}

bool LaunchTable::StopExpecting(int64_t launch_id) {
  absl::MutexLock lock(&mutex_);
  auto expected = begun_.find(launch_id);
  if (expected == begun_.end()) return false;
  const bool begun = expected->second;
  begun_.erase(expected);
  return begun;
}

void LaunchTable::Remove(const Launch* launch) {
  absl::MutexLock lock(&mutex_);
  waiting_.remove_if(
      [launch](const std::shared_ptr<Launch>& other) { return other.get() == launch; });
}

LaunchTable& LaunchTable::Get() {
  static auto* table = new LaunchTable;
  return *table;
}

}  // namespace tf_tpu_ext
