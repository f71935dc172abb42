// What a check remembers about a value.
#ifndef TF_TPU_EXT_CC_CHECK_VALUE_SUMMARY_H_
#define TF_TPU_EXT_CC_CHECK_VALUE_SUMMARY_H_

#include <cstddef>
#include <cstdint>

#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.pb.h"

namespace tf_tpu_ext {

// The worst number in a value, from best to worst. A computation that gets a NaN usually passes its
// bits on, so results computed from memory that FillAsUnwritten has filled show up.
enum class Worst { kFinite, kInfinity, kNan, kUnwritten };

struct ValueSummary {
  // The same for equal bits, and almost never for others. Valid in one process.
  uint64_t hash = 0;
  Worst worst = Worst::kFinite;
};

ValueSummary Summarize(const tensorflow::Tensor& value);

// Fills memory with what no computation makes: a certain NaN in every type that has one, negative
// numbers in signed integers, true in bool.
void FillAsUnwritten(tensorflow::DataType type, void* data, size_t bytes);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_CHECK_VALUE_SUMMARY_H_
