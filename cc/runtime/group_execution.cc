#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/program/shared_update.h"
#include "cc/runtime/batched_replicas.h"
#include "cc/runtime/execution.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

class GroupExecution : public Execution {
 public:
  GroupExecution(StepCores* cores, std::shared_ptr<Program> program)
      : Execution(cores, program->compiled().batched->group_size),
        whole_(std::move(program)),
        batched_(*whole_->compiled().batched),
        unbatched_(num_runs()) {
    for (Slot slot : cores_.numbers()) {
      // Transfers in the program identify replicas of the group by their cores.
      cores_[slot].context.group_cores = &whole_->compiled().cores[slot];
    }
  }

  const std::shared_ptr<Program>& program() const override { return whole_->batched(); }

  void Start(StepRun group, RunOptions options, Program::Done done) override {
    const Slot first = FirstSlotOf(group);
    absl::StatusOr<Arguments> arguments = BatchArguments(batched_, ArgumentsOfRun(group));
    // The batches are copies, so from here on each replica's own arguments only waste memory.
    for (int member = 0; member < slots_per_run_; ++member) {
      cores_[SlotOf(group, member)].arguments.values.clear();
    }
    if (!arguments.ok()) return done(arguments.status(), {});
    if (program()->compiled().shared_update != nullptr) {
      cores_[first].arguments.values = *arguments;
    }
    options.served_cores = CoresOfRun(group);
    program()->Start(cores_[first].context, *std::move(arguments), std::move(options),
                     std::move(done));
  }

  // Allocates the memory for the outputs of each slot.
  absl::StatusOr<UpdateReplica> TakeForUpdate(StepRun group, Outputs outputs) override {
    const SharedUpdate& update = *program()->compiled().shared_update;
    Outputs of_step(batched_.batched_outputs.size());
    for (OutputNumber output : update.replica_outputs.numbers()) {
      of_step[update.replica_outputs[output]] = std::move(outputs[output]);
    }
    TF_ASSIGN_OR_RETURN(unbatched_[group], UnbatchOutputs(batched_, of_step));
    return Execution::TakeForUpdate(group, std::move(outputs));
  }

  absl::StatusOr<std::vector<Outputs>> OutputsOfSlots(StepRun group,
                                                      Outputs outputs) const override {
    if (unbatched_[group].empty()) return UnbatchOutputs(batched_, outputs);
    std::vector<Outputs> slots = unbatched_[group];
    // All replicas get what the update computed.
    for (OutputNumber output : program()->compiled().shared_update->update_outputs) {
      for (Outputs& slot : slots) slot[output] = outputs[output];
    }
    return slots;
  }

  std::string DescribeReplicas(Slot slot) const override {
    const int first = cores_[slot].context.replica.value();
    return absl::StrCat("One of the replicas ", first, " to ", first + slots_per_run_ - 1);
  }

 private:
  const std::shared_ptr<Program> whole_;
  const BatchedReplicas& batched_;
  // Written by TakeForUpdate: the outputs of each slot, except for those of the update.
  ByNumber<StepRun, std::vector<Outputs>> unbatched_;
};

}  // namespace

std::unique_ptr<Execution> MakeGroupExecution(StepCores* cores, std::shared_ptr<Program> program) {
  return std::make_unique<GroupExecution>(cores, std::move(program));
}

}  // namespace tf_tpu_ext
