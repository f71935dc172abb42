#include "cc/runtime/launch_table.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/base/core_threads.h"
#include "cc/profile/recorder.h"
#include "tensorflow/core/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

absl::StatusOr<Slot> SlotOf(const CoreArrival& arrival) {
  TF_ASSIGN_OR_RETURN(const Slot slot, arrival.program->SlotOfCore(arrival.core));
  if (slot.value() >= arrival.program->num_slots()) {
    return absl::InternalError(absl::StrCat(
        "TPU program ", arrival.program->compiled().name, " has core ", arrival.core, " in place ",
        slot, " of ", arrival.program->num_slots(), ". Report this with the program."));
  }
  return slot;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Launch>> LaunchTable::FindOrCreate(
    LaunchId launch_id, Slot slot, const std::shared_ptr<Program>& program, bool* created) {
  for (const auto& [run_id, launch] : waiting_) {
    if (launch->launch_id() != launch_id) continue;
    // Checked before using the slot, which may not exist in a launch on other cores.
    TF_RETURN_IF_ERROR(launch->CheckFits(*program));
    // A core that arrives a second time is in the next iteration of a host loop.
    if (launch->Awaits(slot)) return launch;
  }
  *created = true;
  if (auto expected = begun_.find(launch_id); expected != begun_.end()) expected->second = true;
  const RunId run_id = ++last_run_id_;
  auto launch = std::make_shared<Launch>(services_, launch_id, run_id, program,
                                         [this, run_id] { Leave(run_id); });
  waiting_.emplace(run_id, launch);
  return launch;
}

absl::Status LaunchTable::Arrive(
    LaunchId launch_id, CoreArrival arrival,
    const std::function<void(const std::shared_ptr<Launch>&)>& joined) {
  TF_ASSIGN_OR_RETURN(const Slot slot, SlotOf(arrival));
  std::shared_ptr<Launch> launch;
  bool created = false, complete = false;
  {
    absl::MutexLock lock(&mutex_);
    TF_ASSIGN_OR_RETURN(launch, FindOrCreate(launch_id, slot, arrival.program, &created));
    // Before the core is added, because a launch must know all its cancellations when it starts.
    joined(launch);
    complete = launch->Add(slot, std::move(arrival));
    if (complete) {
      waiting_.erase(launch->run_id());
      running_.emplace(launch->run_id(), launch);
    }
  }
  if (created) launch->WatchWait();
  if (complete) Start(launch);
  return absl::OkStatus();
}

void LaunchTable::Start(const std::shared_ptr<Launch>& launch) const {
  // A profile that ends with the step does not contain ops that have not returned by then. Without
  // the op that passes the core, nothing would say which step the programs belong to.
  CoreThreads* const threads =
      NowIfRecording(services_.recorder).has_value() ? CoreThreads::OfCaller() : nullptr;
  if (threads == nullptr) return launch->Start();
  threads->ScheduleAfterCurrent([launch] { launch->Start(); });
}

void LaunchTable::Reject(LaunchId launch_id, const absl::Status& status) {
  std::vector<std::shared_ptr<Launch>> rejected;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [run_id, launch] : waiting_) {
      if (launch->launch_id() == launch_id) rejected.push_back(launch);
    }
  }
  // Without the lock, which Fail acquires to remove the launch.
  for (const std::shared_ptr<Launch>& launch : rejected) launch->Fail(status);
}

void LaunchTable::Expect(LaunchId launch_id) {
  absl::MutexLock lock(&mutex_);
  begun_.emplace(launch_id, false);
}

bool LaunchTable::StopExpecting(LaunchId launch_id) {
  absl::MutexLock lock(&mutex_);
  auto expected = begun_.find(launch_id);
  if (expected == begun_.end()) return false;
  const bool begun = expected->second;
  begun_.erase(expected);
  return begun;
}

LaunchProgress LaunchTable::Progress(absl::Duration age) const {
  LaunchProgress progress;
  std::shared_ptr<Launch> oldest;
  {
    absl::MutexLock lock(&mutex_);
    progress.ended = ended_;
    if (!running_.empty()) oldest = running_.begin()->second.lock();
    if (!waiting_.empty() && (oldest == nullptr || waiting_.begin()->first < oldest->run_id())) {
      oldest = waiting_.begin()->second;
    }
  }
  if (oldest == nullptr) return progress;
  progress.run_id = oldest->run_id();
  progress.program = oldest->program_name();
  progress.waits = oldest->DescribeWait(age);
  return progress;
}

void LaunchTable::Leave(RunId run_id) {
  // If this is the last reference, the launch is destroyed without the lock.
  std::shared_ptr<Launch> left;
  absl::MutexLock lock(&mutex_);
  if (auto waiting = waiting_.find(run_id); waiting != waiting_.end()) {
    left = std::move(waiting->second);
    waiting_.erase(waiting);
  }
  ended_ += static_cast<int64_t>(running_.erase(run_id));
}

}  // namespace tf_tpu_ext
