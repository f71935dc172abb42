// The running part of a launch, from the start of its programs to their outputs.
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

// The message with which a host tells the others that its runs have succeeded.
inline constexpr char kEndOfRuns[] = "end";

// Starts the runs of a step, collects their outputs, and runs the shared update, if there is one,
// after the last run.
//
// Usage:
//   auto step = Step::Create(services, launch_id, run_id, program, std::move(cores), done);
//   step->Start();   // on any thread; may call `done` before it returns
//   step->Fail(...)  // on any thread, at any time after Create
//
// The first error counts. `done` is called once, when nothing of the step is running any more.
// Until then the step keeps itself alive.
class Step : public std::enable_shared_from_this<Step> {
 public:
  // Receives the outputs of each slot, which are empty unless the status is OK.
  using Done = std::function<void(absl::Status, ByNumber<Slot, Outputs>)>;

  // `program` is the first core's program. `cores` are all slots of the program, and `links` the
  // links to the other hosts that run it, or null.
  static std::shared_ptr<Step> Create(const LaunchServices& services, LaunchId launch_id,
                                      std::shared_ptr<Program> program, StepCores cores,
                                      std::shared_ptr<HostLinks> links, Done done);

  ~Step();

  void Start();

  // Makes the step fail as soon as its cores can stop. Does nothing if the step has failed or
  // ended, or is writing variables: if it has changed some, it must change all and report that.
  void Fail(const absl::Status& status);

 private:
  Step(const LaunchServices& services, LaunchId launch_id, std::shared_ptr<Program> program,
       StepCores cores, std::shared_ptr<HostLinks> links, Done done);

  RunId run_id() const { return cores_[Slot(0)].context.run_id; }

  // Called before anybody else knows the step.
  void PrepareHostCalls();
  void PrepareChecks();

  // Called in sequence on the thread that starts the step, or on the compiler's thread if the
  // program of one replica has to be compiled first.
  void ReadVariables();
  void CompileAlone();
  void StartRuns(std::unique_ptr<Execution> execution);

  std::vector<Core> CoresOf(StepRun run) const;

  // Called on the threads of the runs.
  void StartRun(StepRun run, bool on_one_thread);
  void RunEnded(StepRun run, size_t timed, const absl::Status& status, Outputs outputs);

  // Called on any thread.
  void RunFailed(const absl::Status& status);
  void StopRuns(const absl::Status& status);
  bool Commit();
  // Whether no run has failed so far.
  bool RunsSucceeded();
  // Releases one of the holds that keep the step from ending. The last one ends the step.
  void Release();

  // Ends the step once all hosts say that their runs can end well.
  void AgreeWithHosts();
  bool UpdatesVariables() const;

  // Called on the thread that released the last hold. Nobody else uses the step any more.
  void StartUpdate();
  void Finish(absl::Status status);

  // An error of a slot's program or of its host calls, with the name of the replica.
  absl::Status Explained(Slot slot, const absl::Status& status) const;

  const LaunchServices services_;
  const LaunchId launch_id_;
  const std::shared_ptr<Program> program_;
  // Not guarded: the thread that starts the runs writes them before the first run, and then each
  // run writes its own slots.
  StepCores cores_;
  const std::shared_ptr<HostLinks> links_;
  // Null if nobody needs them.
  const std::shared_ptr<LaunchTimes> times_;
  std::unique_ptr<Execution> execution_;
  // Not guarded: each run writes its own, and they are read after the last run has ended.
  ByNumber<StepRun, Outputs> outputs_;
  // Null for slots whose program makes no calls, and empty if none does. Written only by Create,
  // and destroyed with the step, because a call may outlive the run that made it.
  ByNumber<Slot, std::shared_ptr<HostCalls>> host_calls_;

  // One for each watched program of the cores.
  std::vector<std::unique_ptr<StepCheck>> checks_;
  std::unique_ptr<HostOrder> host_order_;

  // Not acquired while other locks are held, and no lock is acquired while it is held.
  absl::Mutex mutex_;
  // Called without the lock, by the thread that releases the last hold.
  Done done_ ABSL_GUARDED_BY(mutex_);
  // The number of reasons why the step can't end yet: runs in progress, Start until it has started
  // them, and failures until they have stopped all runs.
  int holds_ ABSL_GUARDED_BY(mutex_) = 1;
  // Too late to fail from outside, because variables are being updated or the step has ended.
  bool committed_ ABSL_GUARDED_BY(mutex_) = false;
  // Whether the other hosts have been asked whether their runs end well.
  bool asked_hosts_ ABSL_GUARDED_BY(mutex_) = false;
  // The first error.
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_STEP_H_
