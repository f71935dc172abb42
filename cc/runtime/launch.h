// A launch: one step of a program on all its cores. Replicas that were compiled for shapes of their
// own bring different programs.
//
// The execute op of every core brings its arguments; when the last has come, all cores start. When
// the last core is done, all ops finish, with the same error if any core failed. No thread waits.
#ifndef TF_TPU_EXT_CC_RUNTIME_LAUNCH_H_
#define TF_TPU_EXT_CC_RUNTIME_LAUNCH_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cc/base/wait_monitor.h"
#include "cc/runtime/program.h"
#include "cc/runtime/shared_update.h"
#include "cc/runtime/stacked_replicas.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

class HostCalls;

struct StepArguments {
  std::vector<tensorflow::Tensor> values;
  // Whose values are read when the launch starts. The op of one core has made sure that there are
  // some.
  std::shared_ptr<const ArgumentVariables> variables;
  // Whether the step gives some of the variables new values.
  bool updates_variables = false;
};

// What the execute op of one core brings, and how it is told of the end.
struct CoreArrival {
  int core = 0;
  std::shared_ptr<Program> program;
  // The step of the session or function that the op belongs to.
  int64_t step_id = 0;
  StepArguments arguments;
  Program::Done done;
};

class Launch : public std::enable_shared_from_this<Launch> {
 public:
  Launch(std::shared_ptr<Program> program, int64_t launch_id);

  int64_t launch_id() const { return launch_id_; }

  // Whether the core has a place in the launch and has not come yet.
  bool Awaits(int slot) const;

  // An error unless the program runs on the same cores as those that have come.
  absl::Status CheckFits(const Program& program) const;

  // Takes the arrival, and returns whether it was the last one: then the caller must Start.
  bool Add(int slot, CoreArrival arrival);
  // Starts the programs, at once or when the cores are free.
  void Start();

  // Begins to count the time that the launch waits for its cores.
  void WatchWait();

  // Fails the launch with `status`: at once if it has not started, else as soon as its cores can
  // stop. Only the first call counts.
  void Fail(const absl::Status& status);

 private:
  CoreContext ContextOf(int slot, const CoreArrival& arrival) const;
  bool UpdatesVariables() const;
  // Starts the programs on cores that are free for them.
  void StartOnFreeCores();
  // Variables may have got new values since the cores came.
  void ReadVariables();
  void StartRuns();
  // Lets the programs that call the host do so.
  void PrepareHostCalls();
  void StartSlot(int slot, RunOptions options);
  void StartMergedReplica(int replica, RunOptions options);
  void StartGroup(int group, RunOptions options);
  const std::shared_ptr<Program>& ProgramOf(int slot) const;
  // How many slots run as one, and those of a run.
  int SlotsOfRun() const;
  std::vector<int> SlotsOf(int run) const;
  // The arguments that the cores have brought.
  std::vector<const std::vector<tensorflow::Tensor>*> ArgumentsOf(
      absl::Span<const int> slots) const;
  // Hands what each group's run returned to its replicas.
  absl::Status Unstack();
  // An error of a slot's program, or of its host calls, as it is told.
  absl::Status FailureOf(int slot, const absl::Status& status) const;
  // Ends the runs of one executable, once its host calls have ended; `slots` share it.
  void RunDone(absl::Span<const int> slots, const absl::Status& status,
               std::vector<tensorflow::Tensor> outputs);
  void OneRunLess();
  void StartUpdate();
  void Finish();
  void DropQueuedForCores(const absl::Status& status) const;
  void WaitExpired(absl::Duration waited);

  // Of the core that came first: tells the cores of the launch.
  const std::shared_ptr<Program> program_;
  const int64_t launch_id_;
  const int64_t run_id_;

  mutable absl::Mutex mutex_;
  WaitMonitor::WaitId wait_ ABSL_GUARDED_BY(mutex_) = 0;
  // What runs: `program_`, or what stands in its place. Not guarded: chosen before the runs start.
  std::shared_ptr<Program> runner_;
  // Null unless groups of replicas run as one.
  const StackedReplicas* stacked_ = nullptr;
  // By slot. Not guarded: complete when the launch starts, and then changed by Finish alone.
  std::vector<std::unique_ptr<CoreArrival>> arrivals_;
  std::vector<std::vector<tensorflow::Tensor>> outputs_;
  // By slot, null where the program makes no calls. Not guarded: made before the programs start.
  std::vector<std::shared_ptr<HostCalls>> host_calls_;
  int arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  // Whether the launch has a place in the CoreOrder.
  bool ordered_ ABSL_GUARDED_BY(mutex_) = false;
  // The replicas have ended and the shared update runs: it is too late to fail.
  bool updating_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

// The launches that still wait for cores.
class LaunchTable {
 public:
  // Brings a core to the launch, which starts when all its cores have come. Before that, `joined`
  // gets the launch, so that a cancellation can reach it.
  absl::Status Arrive(int64_t launch_id, CoreArrival arrival,
                      const std::function<void(const std::shared_ptr<Launch>&)>& joined);

  // Fails the launch if it still waits: one of its cores cannot come.
  void Reject(int64_t launch_id, const absl::Status& status);

  void Remove(const Launch* launch);

  // Remembers, until StopExpecting, whether the launch has begun: StopExpecting returns it.
  void Expect(int64_t launch_id);
  bool StopExpecting(int64_t launch_id);

  static LaunchTable& Get();

 private:
  absl::Mutex mutex_;
  std::list<std::shared_ptr<Launch>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, bool> begun_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_LAUNCH_H_
