// What the values of a step reveal.
#ifndef TF_TPU_EXT_CC_CHECK_SHOWN_VALUES_H_
#define TF_TPU_EXT_CC_CHECK_SHOWN_VALUES_H_

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "cc/check/value_summary.h"
#include "cc/program/probes.h"

namespace tf_tpu_ext {

// What one replica has shown, by probe and then by time.
using ShownValues = std::vector<std::vector<ValueSummary>>;

// The worst value that a probe has shown.
Worst WorstOf(const ShownValues& shown, int probe);

// Where non-finite numbers begin, and where they arrive.
struct NonFinite {
  int probe = 0;
  Worst worst = Worst::kFinite;
  // The result; nullopt if they go to the host.
  std::optional<ResultNumber> result;
};

// The ops that make non-finite numbers from finite ones, or the parameters that bring them, if the
// numbers leave the program: otherwise something has masked them, as intended.
std::vector<NonFinite> FindNonFinite(const Probes& probes, const ShownValues& shown);

// Where the values of a mirrored variable begin to differ.
struct Difference {
  MirroredVariable variable;
  // The first op whose values differ although those that it is computed from don't, not counting
  // parameters; the variable's own parameter if it already differed before the step.
  int first = 0;
  // The last op before the variable.
  int last = 0;
  // The parameter from which the first op gets what differs, if there is one.
  std::optional<ParameterNumber> parameter;
};

// `shown` contains what each replica has shown, for at least two replicas.
std::vector<Difference> FindDifferences(const Probes& probes,
                                        absl::Span<const ShownValues* const> shown);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_CHECK_SHOWN_VALUES_H_
