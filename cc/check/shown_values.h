// What the values of a step tell.
#ifndef TF_TPU_EXT_CC_CHECK_SHOWN_VALUES_H_
#define TF_TPU_EXT_CC_CHECK_SHOWN_VALUES_H_

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "cc/check/value_summary.h"
#include "cc/program/probes.h"

namespace tf_tpu_ext {

// What one replica has shown, by probe and time.
using ShownValues = std::vector<std::vector<ValueSummary>>;

// The worst of all values of a probe.
Worst WorstOf(const ShownValues& shown, int probe);

// Where numbers that are not finite begin, and where they arrive.
struct NonFinite {
  int probe = 0;
  Worst worst = Worst::kFinite;
  // The result, or none if they go to the host.
  std::optional<ResultNumber> result;
};

// The ops that make such numbers of finite ones, or parameters that bring them, if they leave the
// program: what masks them has done its work.
std::vector<NonFinite> FindNonFinite(const Probes& probes, const ShownValues& shown);

// Where the values of a mirrored variable begin to differ.
struct Difference {
  MirroredVariable variable;
  // The first op whose values differ while those that it is computed from don't, parameters aside;
  // the variable's own parameter if it differed before.
  int first = 0;
  // The last one before the variable.
  int last = 0;
  // The parameter from which the first gets what differs, if there is one.
  std::optional<ParameterNumber> parameter;
};

// `shown` has what each replica has shown, at least two.
std::vector<Difference> FindDifferences(const Probes& probes,
                                        absl::Span<const ShownValues* const> shown);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_CHECK_SHOWN_VALUES_H_
