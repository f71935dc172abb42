// A launch: one step of a program on all its cores. Replicas that were compiled for shapes of their
// own bring different programs.
//
// The execute op of every core brings its arguments; when the last has come, all cores start. When
// the last core is done, all ops finish, with the same error if any core failed. No thread waits.
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

// What the execute op of one core brings.
struct CoreArrival {
  Core core;
  std::shared_ptr<Program> program;
  // The step of the session or function that the op belongs to.
  int64_t step_id = 0;
  StepArguments arguments;
  // When it came, if a profile was taken then.
  ProfileTime came;
  // Makes the launch's links to the other hosts that run the program; null if there are none.
  std::function<std::shared_ptr<HostLinks>(std::function<void(std::function<void()>)> schedule)>
      connect;
  // Called once, on some thread, with the end of the launch.
  Program::Done done;
};

// Gathers the cores of a launch, has them run as a Step, and gives every op its end.
//
// Made and filled by a LaunchTable. What may happen at any time, on any thread, is Fail: by a
// cancellation, by the wait limit, or because a core can't come.
class Launch : public std::enable_shared_from_this<Launch> {
 public:
  // `program` is that of the core that came first: it says which cores take part. `leave_table` is
  // called, under no lock, if the launch fails while it waits for cores, and when it ends.
  Launch(const LaunchServices& services, LaunchId launch_id, RunId run_id,
         std::shared_ptr<Program> program, std::function<void()> leave_table);

  LaunchId launch_id() const { return launch_id_; }
  RunId run_id() const { return run_id_; }
  const std::string& program_name() const { return program_->compiled().name; }

  // An error unless the program runs on the same cores as those that have come. Only then do its
  // slots mean the same here.
  absl::Status CheckFits(const Program& program) const;

  // Whether the core of the slot has not come yet.
  bool Awaits(Slot slot) const;

  // Takes the arrival, and returns whether it was the last one: then the caller must Start. The
  // slot must be one that is awaited, of a program that fits.
  bool Add(Slot slot, CoreArrival arrival);

  // Starts the programs, at once or when the cores are free. Must be called without the table's
  // lock: the step may end before this returns.
  void Start();

  // Begins to count the time that the launch waits for its cores.
  void WatchWait();

  // Which cores wait for which now, in words; empty if none has waited for `age` or longer.
  std::string DescribeWait(absl::Duration age) const;

  // Fails the launch with `status`: at once if it has not started, else as soon as its cores can
  // stop. Only the first call counts.
  void Fail(const absl::Status& status);

 private:
  // From one to the next, without a way back.
  enum class Phase {
    kGathering,  // some cores have not come
    kAsked,      // all have come, and wait for the first host of the pod to say that they are next
    kOrdered,    // all have come, and wait for others to leave the cores
    kRunning,    // step_ runs, and decides what a failure still does
    kFinished,   // the ops have their ends, or get them now
  };

  // Starts when the first host of the pod has, which thereby orders the programs of all.
  void FollowFirstHost(HostLinks* links);
  void WatchHosts(const std::shared_ptr<HostLinks>& links);
  bool UpdatesVariables() const;
  void StartInOrder();
  // Whether the cores were not free before.
  void StartOnFreeCores(bool after_others);
  void Finish(absl::Status status, ByNumber<Slot, Outputs> outputs);
  // Tells the profile what the cores waited for before they start now.
  void RecordWaits(bool after_others) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropQueuedForCores(const absl::Status& status) const;
  void WaitExpired(absl::Duration waited);
  std::string DescribeWait(Phase phase, absl::Duration age) const;

  const LaunchServices services_;
  const LaunchId launch_id_;
  const RunId run_id_;
  const std::shared_ptr<Program> program_;
  const std::function<void()> leave_table_;

  // Taken after the table's, and before that of the order of cores.
  // Neither a callback nor a step is called under it.
  mutable absl::Mutex mutex_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kGathering;
  // Whether a failure has begun to finish the launch before it could run: nothing starts any more,
  // but cores may still come until the launch has left the table.
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  // The wait that the monitor watches; 0 before WatchWait.
  WaitMonitor::WaitId wait_ ABSL_GUARDED_BY(mutex_) = 0;
  // Null where a core has not come. Guarded until all have come or the launch has left the
  // table; then only Start and Finish use them, one after the other.
  ByNumber<Slot, std::unique_ptr<CoreArrival>> arrivals_;
  int arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  // The place in the order of cores, if it has one, to be given up at the end.
  std::optional<CoreOrder::Place> place_ ABSL_GUARDED_BY(mutex_);
  // Those to the other hosts of the pod, from the start; null if the program runs on none.
  std::shared_ptr<HostLinks> links_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Endpoints::Lost> listener_ ABSL_GUARDED_BY(mutex_);
  // Set while the launch runs.
  std::shared_ptr<Step> step_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_LAUNCH_H_
