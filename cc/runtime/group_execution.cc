#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/runtime/batched_replicas.h"
#include "cc/runtime/execution.h"

namespace tf_tpu_ext {
namespace {

class GroupExecution : public Execution {
 public:
  GroupExecution(StepCores* cores, std::shared_ptr<Program> program)
      : Execution(cores, program->compiled().batched->group_size),
        whole_(std::move(program)),
        batched_(*whole_->compiled().batched) {
    for (Slot slot : cores_.numbers()) {
      // Transfers in the program name replicas of the group by their cores.
      cores_[slot].context.group_cores = &whole_->compiled().cores[slot];
    }
  }

  const std::shared_ptr<Program>& program() const override { return whole_->batched(); }

  void Start(StepRun group, RunOptions options, Program::Done done) override {
    const Slot first = FirstSlotOf(group);
    absl::StatusOr<Arguments> arguments = BatchArguments(batched_, ArgumentsOfRun(group));
    // The batches are copies: each replica's own arguments only take memory from here on.
    for (int member = 0; member < slots_per_run_; ++member) {
      cores_[SlotOf(group, member)].arguments.values.clear();
    }
    if (!arguments.ok()) return done(arguments.status(), {});
    if (program()->compiled().shared_update != nullptr) {
      cores_[first].arguments.values = *arguments;
    }
    program()->Start(cores_[first].context, *std::move(arguments), std::move(options),
                     std::move(done));
  }

  absl::StatusOr<std::vector<Outputs>> OutputsOfSlots(StepRun /*group*/,
                                                      Outputs outputs) const override {
    return UnbatchOutputs(batched_, outputs);
  }

  std::string DescribeReplicas(Slot slot) const override {
    const int first = cores_[slot].context.replica.value();
    return absl::StrCat("One of the replicas ", first, " to ", first + slots_per_run_ - 1);
  }

 private:
  const std::shared_ptr<Program> whole_;
  const BatchedReplicas& batched_;
};

}  // namespace

std::unique_ptr<Execution> MakeGroupExecution(StepCores* cores, std::shared_ptr<Program> program) {
  return std::make_unique<GroupExecution>(cores, std::move(program));
}

}  // namespace tf_tpu_ext
