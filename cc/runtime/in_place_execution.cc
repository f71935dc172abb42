#include <utility>

#include "absl/status/status.h"
#include "cc/runtime/execution.h"
#include "cc/runtime/run_in_place.h"

namespace tf_tpu_ext {
namespace {

class InPlaceExecution : public Execution {
 public:
  InPlaceExecution(StepCores* cores, std::function<bool()> commit)
      : Execution(cores, /*slots_per_run=*/1), commit_(std::move(commit)) {}

  const std::shared_ptr<Program>& program() const override { return cores_[Slot(0)].program; }

  // Returns when the run has finished, because the thread that acquires the locks has to release
  // them. RunInPlace decides whether the run stays on this thread.
  void Start(StepRun /*run*/, RunOptions options, Program::Done done) override {
    StepCore& core = cores_[Slot(0)];
    if (!commit_()) return done(absl::CancelledError("The step failed before it began."), {});
    Outputs outputs;
    absl::Status status =
        RunInPlace(*core.program, core.context, core.program->compiled().overwritten_variables,
                   {core.arguments.variables.get()}, std::move(core.arguments.values),
                   std::move(options), &outputs);
    done(std::move(status), std::move(outputs));
  }

 private:
  const std::function<bool()> commit_;
};

}  // namespace

std::unique_ptr<Execution> MakeInPlaceExecution(StepCores* cores, std::function<bool()> commit) {
  return std::make_unique<InPlaceExecution>(cores, std::move(commit));
}

}  // namespace tf_tpu_ext
