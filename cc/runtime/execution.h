// The ways to run the replicas of a step.
//
// Usually each core runs its own executable. Sometimes several cores share a run: those of a
// replica or of a group of replicas that was compiled as one program. An Execution knows which
// slots a run serves, which of their arguments it takes, and what it returns to each of them. The
// Step decides when and on which threads runs start, and what their errors mean.
#ifndef TF_TPU_EXT_CC_RUNTIME_EXECUTION_H_
#define TF_TPU_EXT_CC_RUNTIME_EXECUTION_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cc/base/core_context.h"
#include "cc/base/core_numbers.h"
#include "cc/base/number.h"
#include "cc/program/value_numbers.h"
#include "cc/runtime/program.h"
#include "cc/runtime/run_in_place.h"
#include "cc/runtime/shared_update.h"

namespace tf_tpu_ext {

class ComputePool;

struct StepArguments {
  Arguments values;
  // The variables whose values are read when the step starts. The core's op has checked that they
  // are initialized.
  std::shared_ptr<const ArgumentVariables> variables;
  // Whether the step assigns new values to some of the variables.
  bool updates_variables = false;
};

// One core of a running step. Replicas that were compiled for different shapes have different
// programs.
struct StepCore {
  CoreContext context;
  std::shared_ptr<Program> program;
  StepArguments arguments;
};

using StepCores = ByNumber<Slot, StepCore>;

// Not thread-safe, except that different runs may start concurrently on different threads.
class Execution {
 public:
  // Run r serves the slots starting at r * slots_per_run. `cores` must outlive the execution.
  Execution(StepCores* cores, int slots_per_run) : cores_(*cores), slots_per_run_(slots_per_run) {}
  virtual ~Execution() = default;
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  int num_runs() const { return cores_.size() / slots_per_run_; }
  Slot FirstSlotOf(StepRun run) const { return SlotOf(run, 0); }

  // The program that runs. If replicas have different programs, these agree on everything that the
  // step asks: whether they wait, how long they take, what follows them.
  virtual const std::shared_ptr<Program>& program() const = 0;

  // Starts a run and returns. Called once per run. `done` receives the outputs on some thread.
  virtual void Start(StepRun run, RunOptions options, Program::Done done) = 0;

  // The outputs of each slot of a run, created from the outputs of the run. Called after all runs
  // have finished.
  virtual absl::StatusOr<std::vector<Outputs>> OutputsOfSlots(StepRun run, Outputs outputs) const;

  // What error messages call the replicas of a slot's run.
  virtual std::string DescribeReplicas(Slot slot) const;

  // The replicas of a run, as input to the shared update. Called once, after all runs have finished
  // and before OutputsOfSlots, which then must not fail, because the update has changed variables.
  virtual absl::StatusOr<UpdateReplica> TakeForUpdate(StepRun run, Outputs outputs);

 protected:
  // The slot at this position among those that the run serves.
  Slot SlotOf(StepRun run, int place) const { return Slot(run.value() * slots_per_run_ + place); }
  std::vector<const Arguments*> ArgumentsOfRun(StepRun run) const;
  std::vector<Core> CoresOfRun(StepRun run) const;

  StepCores& cores_;
  const int slots_per_run_;
};

// Each slot runs its own program, or `stand_in` if that is not null.
std::unique_ptr<Execution> MakeSlotExecution(StepCores* cores, std::shared_ptr<Program> stand_in);

// The only slot runs while holding the locks of the variables that it updates, and overwrites their
// values. `commit` is called immediately before, without a lock. If it returns false, the step has
// failed and nothing may be overwritten any more. If it returns true, the step can't be failed from
// outside.
std::unique_ptr<Execution> MakeInPlaceExecution(StepCores* cores, std::function<bool()> commit);

// The cores of a replica share one run of an executable (CompiledProgram::core_slices).
std::unique_ptr<Execution> MakeMergedExecution(StepCores* cores);

// Groups of replicas run as one: their arguments are batched, and their outputs are unbatched. All
// cores have the same `program`.
std::unique_ptr<Execution> MakeGroupExecution(StepCores* cores, std::shared_ptr<Program> program);

// The only place that chooses how to run. Returns null if the replicas can't run in groups and the
// program of one replica is not compiled yet. The caller then compiles it, which takes time, and
// creates a slot execution. `program` is the first core's program.
std::unique_ptr<Execution> ChooseExecution(const std::shared_ptr<Program>& program,
                                           StepCores* cores, const ComputePool& pool,
                                           std::function<bool()> commit);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_EXECUTION_H_
