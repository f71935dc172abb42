// The running part of a launch: from the start of its programs to their outputs.
#ifndef TF_TPU_EXT_CC_RUNTIME_STEP_H_
#define TF_TPU_EXT_CC_RUNTIME_STEP_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"
#include "cc/base/number.h"
#include "cc/program/value_numbers.h"
#include "cc/runtime/execution.h"
#include "cc/runtime/first_launches.h"
#include "cc/runtime/launch_services.h"
#include "cc/runtime/program.h"

namespace tf_tpu_ext {

class HostCalls;
class HostLinks;
class HostOrder;
class StepCheck;

// The message between hosts by which one says that its runs have ended well.
inline constexpr char kEndOfRuns[] = "end";

// Starts the runs of a step, gathers their outputs, and runs the shared update, if there is one,
// when the last has ended.
//
// Usage:
//   auto step = Step::Create(services, launch_id, run_id, program, std::move(cores), done);
//   step->Start();   // on any thread; may call `done` before it returns
//   step->Fail(...)  // on any thread, at any time after Create
//
// The first error counts, and `done` is called once, when nothing of the step runs any more. Until
// then the step keeps itself alive.
class Step : public std::enable_shared_from_this<Step> {
 public:
  // Gets the outputs of each slot, which are empty unless the status is OK.
  using Done = std::function<void(absl::Status, ByNumber<Slot, Outputs>)>;

  // `program` is what the first core has brought. `cores` are all of its slots, and `links` those
  // to the other hosts that run it, or null.
  static std::shared_ptr<Step> Create(const LaunchServices& services, LaunchId launch_id,
                                      std::shared_ptr<Program> program, StepCores cores,
                                      std::shared_ptr<HostLinks> links, Done done);

  ~Step();

  void Start();

  // Makes the step fail as soon as its cores can stop. Does nothing once the step has failed or
  // ended, or writes variables: a step that has changed some must change all, and say so.
  void Fail(const absl::Status& status);

 private:
  Step(const LaunchServices& services, LaunchId launch_id, std::shared_ptr<Program> program,
       StepCores cores, std::shared_ptr<HostLinks> links, Done done);

  RunId run_id() const { return cores_[Slot(0)].context.run_id; }

  // Before anybody else knows the step.
  void PrepareHostCalls();
  void PrepareChecks();

  // One after the other on the thread that starts the step, or on that of the compiler if the
  // program of one replica has to be compiled first.
  void ReadVariables();
  void CompileAlone();
  void StartRuns(std::unique_ptr<Execution> execution);

  std::vector<Core> CoresOf(StepRun run) const;

  // On the threads of the runs.
  void StartRun(StepRun run, bool on_one_thread);
  void RunEnded(StepRun run, size_t timed, const absl::Status& status, Outputs outputs);

  // On any thread.
  void RunFailed(const absl::Status& status);
  void StopRuns(const absl::Status& status);
  bool Commit();
  // Whether none has failed so far.
  bool RunsSucceeded();
  // Gives up one of the reasons not to end yet; the last one ends the step.
  void Release();

  // Ends the step once all hosts say that theirs can end well.
  void AgreeWithHosts();
  bool UpdatesVariables() const;

  // On the thread that gave up the last hold: nobody else uses the step any more.
  void StartUpdate();
  void Finish(absl::Status status);

  // An error of a slot's program, or of its host calls, with the name of the replica.
  absl::Status Explained(Slot slot, const absl::Status& status) const;

  const LaunchServices services_;
  const LaunchId launch_id_;
  const std::shared_ptr<Program> program_;
  // Not guarded: who starts the runs writes them before the first one, and each run its own slots.
  StepCores cores_;
  const std::shared_ptr<HostLinks> links_;
  // Null if nobody wants them.
  const std::shared_ptr<LaunchTimes> times_;
  std::unique_ptr<Execution> execution_;
  // Not guarded: each run writes its own, and they are read when the last has ended.
  ByNumber<StepRun, Outputs> outputs_;
  // Null where the program makes no calls; empty if none does. Written by Create alone,
  // and destroyed with the step: a call may outlive the run that made it.
  ByNumber<Slot, std::shared_ptr<HostCalls>> host_calls_;

  // Of each program that the cores have brought, if it is watched.
  std::vector<std::unique_ptr<StepCheck>> checks_;
  std::unique_ptr<HostOrder> host_order_;

  // Under no lock of others, and none is taken under it.
  absl::Mutex mutex_;
  // Called without the lock, by the thread that gives up the last hold.
  Done done_ ABSL_GUARDED_BY(mutex_);
  // Why the step can't end yet: runs that have not ended, Start until it has started them, and
  // failures until they have stopped all runs.
  int holds_ ABSL_GUARDED_BY(mutex_) = 1;
  // It is too late to fail from outside: variables get new values, or the step has ended.
  bool committed_ ABSL_GUARDED_BY(mutex_) = false;
  // Whether the other hosts have been asked if theirs ends well.
  bool asked_hosts_ ABSL_GUARDED_BY(mutex_) = false;
  // The first error.
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_STEP_H_
