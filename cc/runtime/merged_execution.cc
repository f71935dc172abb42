#include <algorithm>
#include <utility>

#include "cc/runtime/execution.h"

namespace tf_tpu_ext {
namespace {

class MergedExecution : public Execution {
 public:
  explicit MergedExecution(StepCores* cores)
      : Execution(cores, (*cores)[Slot(0)].program->compiled().num_cores_per_replica) {}

  const std::shared_ptr<Program>& program() const override { return cores_[Slot(0)].program; }

  void Start(StepRun run, RunOptions options, Program::Done done) override {
    const Slot first = FirstSlotOf(run);
    const std::shared_ptr<Program>& program = cores_[first].program;
    Arguments arguments;
    for (LogicalCore core : program->compiled().core_slices.numbers()) {
      const auto& argument_of_given = program->compiled().core_slices[core].arguments;
      Arguments& values = cores_[SlotOf(run, core.value())].arguments.values;
      const int count = std::min(argument_of_given.size(), values.size());
      for (ArgumentNumber given : NumbersBelow<ArgumentNumber>(count)) {
        const ArgumentNumber argument = argument_of_given[given];
        if (!arguments.Has(argument)) arguments.resize(argument.value() + 1);
        arguments[argument] = std::move(values[given]);
      }
    }
    options.served_cores = CoresOfRun(run);
    program->Start(cores_[first].context, std::move(arguments), std::move(options),
                   std::move(done));
  }

  absl::StatusOr<std::vector<Outputs>> OutputsOfSlots(StepRun run, Outputs outputs) const override {
    const CompiledProgram& compiled = cores_[FirstSlotOf(run)].program->compiled();
    std::vector<Outputs> slots;
    for (const CompiledProgram::CoreSlice& slice : compiled.core_slices) {
      Outputs& wanted = slots.emplace_back();
      // Not moved, because several cores may need the same output.
      for (OutputNumber output : slice.outputs) wanted.Add(outputs[output]);
    }
    return slots;
  }
};

}  // namespace

std::unique_ptr<Execution> MakeMergedExecution(StepCores* cores) {
  return std::make_unique<MergedExecution>(cores);
}

}  // namespace tf_tpu_ext
