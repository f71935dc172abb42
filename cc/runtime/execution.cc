#include "cc/runtime/execution.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/base/compute_pool.h"
#include "cc/runtime/batched_replicas.h"

namespace tf_tpu_ext {

absl::StatusOr<std::vector<Outputs>> Execution::OutputsOfSlots(StepRun /*run*/,
                                                               Outputs outputs) const {
  std::vector<Outputs> slots;
  slots.push_back(std::move(outputs));
  return slots;
}

std::string Execution::DescribeReplicas(Slot slot) const {
  return absl::StrCat("Replica ", cores_[slot].context.replica);
}

absl::StatusOr<UpdateReplica> Execution::TakeForUpdate(StepRun run, Outputs outputs) {
  const Slot first = FirstSlotOf(run);
  UpdateReplica replica;
  replica.context = cores_[first].context;
  replica.cores = CoresOfRun(run);
  replica.arguments = std::move(cores_[first].arguments.values);
  for (int place = 0; place < slots_per_run_; ++place) {
    replica.variables.push_back(cores_[SlotOf(run, place)].arguments.variables);
  }
  replica.outputs = std::move(outputs);
  return replica;
}

std::vector<const Arguments*> Execution::ArgumentsOfRun(StepRun run) const {
  std::vector<const Arguments*> arguments;
  for (int place = 0; place < slots_per_run_; ++place) {
    arguments.push_back(&cores_[SlotOf(run, place)].arguments.values);
  }
  return arguments;
}

std::vector<Core> Execution::CoresOfRun(StepRun run) const {
  std::vector<Core> cores;
  for (int place = 0; place < slots_per_run_; ++place) {
    cores.push_back(cores_[SlotOf(run, place)].context.core);
  }
  return cores;
}

std::unique_ptr<Execution> ChooseExecution(const std::shared_ptr<Program>& program,
                                           StepCores* cores, const ComputePool& pool,
                                           std::function<bool()> commit) {
  const CompiledProgram& compiled = program->compiled();
  if (!compiled.core_slices.empty()) return MakeMergedExecution(cores);
  if (compiled.batched != nullptr) {
    // Once replicas had to run alone, they always do: switching back and forth would only cost
    // copies.
    if (std::shared_ptr<Program> alone = program->AloneIfBuilt()) {
      return MakeSlotExecution(cores, std::move(alone));
    }
    std::vector<const Arguments*> arguments;
    for (const StepCore& core : *cores) arguments.push_back(&core.arguments.values);
    if (!CanRunBatched(*compiled.batched, arguments)) return nullptr;
    return MakeGroupExecution(cores, program);
  }
  // A run in place waits for its end while holding locks, which threads of the compute pool must
  // not do.
  if (!compiled.overwritten_variables.empty() && cores->size() == 1 && !pool.IsCaller()) {
    const StepArguments& arguments = (*cores)[Slot(0)].arguments;
    if (MayRunInPlace(compiled.overwritten_variables, arguments.values,
                      {arguments.variables.get()})) {
      return MakeInPlaceExecution(cores, std::move(commit));
    }
  }
  return MakeSlotExecution(cores, nullptr);
}

}  // namespace tf_tpu_ext
