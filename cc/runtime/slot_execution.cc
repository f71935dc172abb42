#include <utility>

#include "cc/runtime/execution.h"

namespace tf_tpu_ext {
namespace {

class SlotExecution : public Execution {
 public:
  SlotExecution(StepCores* cores, std::shared_ptr<Program> stand_in)
      : Execution(cores, /*slots_per_run=*/1), stand_in_(std::move(stand_in)) {}

  const std::shared_ptr<Program>& program() const override { return ProgramOf(Slot(0)); }

  void Start(StepRun run, RunOptions options, Program::Done done) override {
    const Slot slot = FirstSlotOf(run);
    StepCore& core = cores_[slot];
    const std::shared_ptr<Program>& program = ProgramOf(slot);
    Arguments arguments;
    if (program->compiled().shared_update != nullptr) {
      arguments = core.arguments.values;  // the update also reads some of them
    } else {
      // Buffers to which nobody else refers are freed as early as the program allows.
      arguments = std::move(core.arguments.values);
    }
    program->Start(core.context, std::move(arguments), std::move(options), std::move(done));
  }

 private:
  const std::shared_ptr<Program>& ProgramOf(Slot slot) const {
    return stand_in_ != nullptr ? stand_in_ : cores_[slot].program;
  }

  const std::shared_ptr<Program> stand_in_;
};

}  // namespace

std::unique_ptr<Execution> MakeSlotExecution(StepCores* cores, std::shared_ptr<Program> stand_in) {
  return std::make_unique<SlotExecution>(cores, std::move(stand_in));
}

}  // namespace tf_tpu_ext
