// Keeps results of dynamic shape out of the executable's interface.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_STATIC_RESULTS_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_STATIC_RESULTS_H_

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cc/base/number.h"
#include "cc/program/value_numbers.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// The dynamic dimensions of each result, with the number of the additional result, an int32, that
// holds the true size.
using DynamicSizes = ByNumber<ResultNumber, std::vector<std::pair<int, ResultNumber>>>;

// Pads every result to its bound and appends the true sizes to the results. XLA:CPU stores the
// sizes of a dynamic array behind its data and loses them when it copies the array, for example
// when the same value is returned twice. Returns nothing and leaves the module unchanged if no
// result is dynamic.
absl::StatusOr<DynamicSizes> MakeResultsStatic(xla::HloModule* module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_STATIC_RESULTS_H_
