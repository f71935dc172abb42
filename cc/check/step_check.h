// Watches one step of a program: what its values are on each replica, and what that tells.
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
  // More values of one probe are taken together.
  static constexpr size_t kMostOfProbe = 1024;

  // Begins a step of `program`, which has probes. `findings` must outlive the check.
  // `core_variables` are the arguments that are variables of the cores: one of the host is shared.
  StepCheck(std::shared_ptr<const CompiledProgram> program, std::set<ArgumentNumber> core_variables,
            Findings* findings);

  int64_t step() const { return step_; }

  // Thread-safe. Numbers that the program has no probe for are left out.
  void Show(Slot slot, int probe, ValueSummary value);

  // When nothing of the step runs any more: adds what it has found, once.
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
  // Not moved: Show has them at any time.
  std::vector<std::unique_ptr<Shown>> shown_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_CHECK_STEP_CHECK_H_
