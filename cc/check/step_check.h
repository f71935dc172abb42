// Watches one step of a program: what its values are on each replica, and what that reveals.
#ifndef TF_TPU_EXT_CC_CHECK_STEP_CHECK_H_
#define TF_TPU_EXT_CC_CHECK_STEP_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cc/base/core_numbers.h"
#include "cc/base/number.h"
#include "cc/check/findings.h"
#include "cc/check/shown_values.h"
#include "cc/check/value_summary.h"
#include "cc/program/compiled_program.h"
#include "cc/program/value_numbers.h"

namespace tf_tpu_ext {

class StepCheck {
 public:
  // Further values of a probe are combined into one.
  static constexpr size_t kMostOfProbe = 1024;

  // Begins a step of `program`, which must have probes. `findings` must outlive the check.
  // `core_variables` are the arguments that are variables on the cores: a host variable is shared.
  StepCheck(std::shared_ptr<const CompiledProgram> program, std::set<ArgumentNumber> core_variables,
            Findings* findings);

  int64_t step() const { return step_; }

  // Thread-safe. Ignores numbers for which the program has no probe.
  void Show(Slot slot, int probe, ValueSummary value);

  // Adds what the check has found. Call it once, when nothing of the step runs anymore.
  void End();

 private:
  struct Shown {
    absl::Mutex mutex;
    ShownValues values ABSL_GUARDED_BY(mutex);
  };

  const std::shared_ptr<const CompiledProgram> program_;
  const std::set<ArgumentNumber> core_variables_;
  Findings& findings_;
  const int64_t step_;
  // Pointers, because the elements must not move: Show may use them at any time.
  std::vector<std::unique_ptr<Shown>> shown_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_CHECK_STEP_CHECK_H_
