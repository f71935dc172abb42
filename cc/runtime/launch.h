// A launch: one step of a program on all its cores. Replicas that were compiled for different
// shapes have different programs.
//
// The execute op of each core passes its arguments. When the last one has arrived, all cores start.
// When the last core is done, all ops finish, with the same error if any core failed. No thread
// waits.
#ifndef TF_TPU_EXT_CC_RUNTIME_LAUNCH_H_
#define TF_TPU_EXT_CC_RUNTIME_LAUNCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"
#include "cc/base/number.h"
#include "cc/base/wait_monitor.h"
#include "cc/pods/endpoints.h"
#include "cc/profile/recorder.h"
#include "cc/program/value_numbers.h"
#include "cc/runtime/core_order.h"
#include "cc/runtime/execution.h"
#include "cc/runtime/launch_services.h"
#include "cc/runtime/program.h"
#include "cc/runtime/step.h"

namespace tf_tpu_ext {

class HostLinks;

// What the execute op of one core passes.
struct CoreArrival {
  Core core;
  std::shared_ptr<Program> program;
  // The step of the session or function that the op belongs to.
  int64_t step_id = 0;
  StepArguments arguments;
  // When it arrived, if a profile was being taken.
  ProfileTime came;
  // Creates the launch's links to the other hosts that run the program. Null if there are none.
  std::function<std::shared_ptr<HostLinks>(std::function<void(std::function<void()>)> schedule)>
      connect;
  // Called once, on some thread, when the launch has ended.
  Program::Done done;
};

// Collects the cores of a launch, runs them as a Step, and finishes all ops.
//
// Created and filled by a LaunchTable. Only Fail may be called at any time and on any thread: on
// cancellation, at the wait limit, or if a core can't arrive.
class Launch : public std::enable_shared_from_this<Launch> {
 public:
  // `program` is the program of the first core to arrive. It determines which cores take part.
  // `leave_table` is called without a lock, if the launch fails while it waits for cores, and when
  // it ends.
  Launch(const LaunchServices& services, LaunchId launch_id, RunId run_id,
         std::shared_ptr<Program> program, std::function<void()> leave_table);

  LaunchId launch_id() const { return launch_id_; }
  RunId run_id() const { return run_id_; }
  const std::string& program_name() const { return program_->compiled().name; }

  // Returns an error unless the program runs on the same cores as those that have arrived. Only
  // then do its slots mean the same here.
  absl::Status CheckFits(const Program& program) const;

  // Whether the core of the slot has not arrived yet.
  bool Awaits(Slot slot) const;

  // Adds the arrival and returns whether it was the last one. If so, the caller must call Start.
  // The slot must be awaited, and the program must fit.
  bool Add(Slot slot, CoreArrival arrival);

  // Starts the programs now, or when the cores are free. Must be called without the table's lock,
  // because the step may end before this returns.
  void Start();

  // Starts measuring how long the launch waits for its cores.
  void WatchWait();

  // Describes which cores currently wait for which. Empty if none has waited for `age` or longer.
  std::string DescribeWait(absl::Duration age) const;

  // Fails the launch with `status`: immediately if it has not started, otherwise as soon as its
  // cores can stop. Only the first call has an effect.
  void Fail(const absl::Status& status);

 private:
  // Phases only advance.
  enum class Phase {
    kGathering,  // some cores have not arrived
    kAsked,      // all have arrived, and wait for the go-ahead of the pod's first host
    kOrdered,    // all have arrived, and wait for others to leave the cores
    kRunning,    // step_ is running, and decides what a failure can still do
    kFinished,   // the ops have finished, or are finishing now
  };

  // Starts after the first host of the pod has started, which orders the programs of all hosts.
  void FollowFirstHost(HostLinks* links);
  void WatchHosts(const std::shared_ptr<HostLinks>& links);
  bool UpdatesVariables() const;
  void StartInOrder();
  // `after_others` says whether the cores were not free before.
  void StartOnFreeCores(bool after_others);
  void Finish(absl::Status status, ByNumber<Slot, Outputs> outputs);
  // Records in the profile what the cores waited for before they start now.
  void RecordWaits(bool after_others) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropQueuedForCores(const absl::Status& status) const;
  void WaitExpired(absl::Duration waited);
  std::string DescribeWait(Phase phase, absl::Duration age) const;

  const LaunchServices services_;
  const LaunchId launch_id_;
  const RunId run_id_;
  const std::shared_ptr<Program> program_;
  const std::function<void()> leave_table_;

  // Acquired after the table's lock, and before that of the core order.
  // Neither callbacks nor steps are called while it is held.
  mutable absl::Mutex mutex_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kGathering;
  // Whether a failure has begun to finish the launch before it could run. Nothing starts any more,
  // but cores may still arrive until the launch has left the table.
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  // The wait that the monitor watches. 0 before WatchWait.
  WaitMonitor::WaitId wait_ ABSL_GUARDED_BY(mutex_) = 0;
  // Null for cores that have not arrived. Guarded until all have arrived or the launch has left the
  // table. After that, only Start and Finish use them, one after the other.
  ByNumber<Slot, std::unique_ptr<CoreArrival>> arrivals_;
  int arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  // The place in the core order, if any, which is given up at the end.
  std::optional<CoreOrder::Place> place_ ABSL_GUARDED_BY(mutex_);
  // The links to the other hosts of the pod, once started. Null if the program does not run on
  // other hosts.
  std::shared_ptr<HostLinks> links_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Endpoints::Lost> listener_ ABSL_GUARDED_BY(mutex_);
  // Set while the launch is running.
  std::shared_ptr<Step> step_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_LAUNCH_H_
