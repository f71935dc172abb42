// The ways to run the replicas of a step.
//
// Usually every core runs an executable of its own. Sometimes several cores share one run: those of
// a replica that was compiled as one, or those of a group of replicas that was. An Execution knows
// which slots a run serves, what it takes of their arguments, and what it leaves to each of them.
// When runs start, on which threads, and what their errors mean is the Step's business.
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
  // The variables whose values are read when the step starts. The op of the core has made sure that
  // they have some.
  std::shared_ptr<const ArgumentVariables> variables;
  // Whether the step gives some of the variables new values.
  bool updates_variables = false;
};

// One core of a running step. Replicas that were compiled for shapes of their own bring different
// programs.
struct StepCore {
  CoreContext context;
  std::shared_ptr<Program> program;
  StepArguments arguments;
};

using StepCores = ByNumber<Slot, StepCore>;

// Not thread-safe, except that different runs may start on different threads at once.
class Execution {
 public:
  // Run r serves the slots from r * slots_per_run; `cores` must outlive the execution.
  Execution(StepCores* cores, int slots_per_run) : cores_(*cores), slots_per_run_(slots_per_run) {}
  virtual ~Execution() = default;
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  int num_runs() const { return cores_.size() / slots_per_run_; }
  Slot FirstSlotOf(StepRun run) const { return SlotOf(run, 0); }

  // What runs. Where replicas bring programs of their own, they differ in nothing that the step
  // asks: whether they wait, how long they take, what follows them.
  virtual const std::shared_ptr<Program>& program() const = 0;

  // Starts a run and returns, once for each run; `done` gets its outputs, on some thread.
  virtual void Start(StepRun run, RunOptions options, Program::Done done) = 0;

  // The outputs of the slots of a run, made of the outputs of the run. Called when all runs have
  // ended.
  virtual absl::StatusOr<std::vector<Outputs>> OutputsOfSlots(StepRun run, Outputs outputs) const;

  // What errors call the replicas of a slot's run.
  virtual std::string DescribeReplicas(Slot slot) const;

  // The replicas of a run as the shared update takes them. Called once, when all runs have ended,
  // and before OutputsOfSlots, which must not fail then: the update has changed variables.
  virtual absl::StatusOr<UpdateReplica> TakeForUpdate(StepRun run, Outputs outputs);

 protected:
  // The slot at a place of those that the run serves.
  Slot SlotOf(StepRun run, int place) const { return Slot(run.value() * slots_per_run_ + place); }
  std::vector<const Arguments*> ArgumentsOfRun(StepRun run) const;
  std::vector<Core> CoresOfRun(StepRun run) const;

  StepCores& cores_;
  const int slots_per_run_;
};

// Each slot runs its own program, or `stand_in` if that is not null.
std::unique_ptr<Execution> MakeSlotExecution(StepCores* cores, std::shared_ptr<Program> stand_in);

// The only slot runs under the locks of the variables it updates and overwrites their values.
// `commit` is asked under no lock, immediately before: if it returns false, the step has failed and
// nothing may be overwritten any more; if it returns true, the step can't be failed from outside.
std::unique_ptr<Execution> MakeInPlaceExecution(StepCores* cores, std::function<bool()> commit);

// The cores of a replica share one run of an executable (CompiledProgram::core_slices).
std::unique_ptr<Execution> MakeMergedExecution(StepCores* cores);

// Groups of replicas run as one: their arguments are batched, and their outputs unbatched.
// `program` is the one that all cores have brought.
std::unique_ptr<Execution> MakeGroupExecution(StepCores* cores, std::shared_ptr<Program> program);

// The one place where the way to run is chosen. Null if the replicas can't run in groups and the
// program of one replica is not compiled yet: then the caller compiles it, which takes its time,
// and makes a slot execution of it. `program` is what the first core has brought.
std::unique_ptr<Execution> ChooseExecution(const std::shared_ptr<Program>& program,
                                           StepCores* cores, const ComputePool& pool,
                                           std::function<bool()> commit);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_EXECUTION_H_
