#include <algorithm>
#include <utility>

#include "cc/runtime/execution.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

class MergedExecution : public Execution {
 public:
  explicit MergedExecution(StepCores* cores)
      : Execution(cores, cores->front().program->compiled().num_cores_per_replica) {}

  const std::shared_ptr<Program>& program() const override { return cores_[0].program; }

  void Start(int run, RunOptions options, Program::Done done) override {
    const int first = FirstSlotOf(run);
    const std::shared_ptr<Program>& program = cores_[first].program;
    std::vector<Tensor> arguments;
    for (int core = 0; core < slots_per_run_; ++core) {
      const std::vector<int>& numbers = program->compiled().core_slices[core].arguments;
      std::vector<Tensor>& given = cores_[first + core].arguments.values;
      const size_t count = std::min(numbers.size(), given.size());
      for (size_t i = 0; i < count; ++i) {
        if (numbers[i] >= static_cast<int>(arguments.size())) arguments.resize(numbers[i] + 1);
        arguments[numbers[i]] = std::move(given[i]);
      }
    }
    program->Start(cores_[first].context, std::move(arguments), std::move(options),
                   std::move(done));
  }

  absl::StatusOr<std::vector<std::vector<Tensor>>> OutputsOfSlots(
      int run, std::vector<Tensor> outputs) const override {
    const CompiledProgram& compiled = cores_[FirstSlotOf(run)].program->compiled();
    std::vector<std::vector<Tensor>> slots(slots_per_run_);
    for (int core = 0; core < slots_per_run_; ++core) {
      // Not moved: several cores may want the same output.
      for (int number : compiled.core_slices[core].outputs) slots[core].push_back(outputs[number]);
    }
    return slots;
  }
};

}  // namespace

std::unique_ptr<Execution> MakeMergedExecution(StepCores* cores) {
  return std::make_unique<MergedExecution>(cores);
}

}  // namespace tf_tpu_ext
