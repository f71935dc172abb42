// Where an executable leaves its results, and which of its arguments it writes over.
#ifndef TF_TPU_EXT_CC_RUNTIME_RESULT_LAYOUT_H_
#define TF_TPU_EXT_CC_RUNTIME_RESULT_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "cc/base/number.h"
#include "cc/program/compiled_program.h"
#include "cc/program/value_numbers.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"

namespace tf_tpu_ext {

// Computed once per program, so that its runs only look it up.
struct ResultLayout {
  // One element of the executable's result tuple.
  struct Result {
    tensorflow::DataType dtype = tensorflow::DT_INVALID;
    tensorflow::TensorShape shape;
    // Its position in XLA's memory.
    int64_t allocation = -1;
    int64_t offset = 0;
    // The argument whose memory it takes over, if any.
    std::optional<ArgumentNumber> argument;
  };

  static absl::StatusOr<ResultLayout> Of(const CompiledProgram& compiled);

  ByNumber<ResultNumber, Result> results;
  // None for a constant output.
  ByNumber<OutputNumber, std::optional<ResultNumber>> result_of_output;
  // For each of XLA's allocations, the result that makes up all of it, if any. Such a result is
  // written directly to the caller's memory. A result that the program returns twice owns its
  // allocation once.
  std::vector<std::optional<ResultNumber>> result_of_allocation;
  // The parameters whose memory the program writes results to. The module knows them in all
  // versions; in TensorFlow 2.19, the buffer assignment of a restored executable has lost them.
  std::set<ParameterNumber> overwritten_parameters;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_RESULT_LAYOUT_H_
