// What a check remembers of a value.
#ifndef TF_TPU_EXT_CC_CHECK_VALUE_SUMMARY_H_
#define TF_TPU_EXT_CC_CHECK_VALUE_SUMMARY_H_

#include <cstddef>
#include <cstdint>

#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.pb.h"

namespace tf_tpu_ext {

// The worst number of a value, from the best on. A computation that meets a NaN hands on its bits,
// as a rule, so what comes of memory that FillAsUnwritten has filled shows.
enum class Worst { kFinite, kInfinity, kNan, kUnwritten };

struct ValueSummary {
  // Equal for equal bits, and else hardly ever. Of one process.
  uint64_t hash = 0;
  Worst worst = Worst::kFinite;
};

ValueSummary Summarize(const tensorflow::Tensor& value);

// Fills memory with what no computation makes: a certain NaN in every type that has one, negative
// numbers in signed integers, true in bool.
void FillAsUnwritten(tensorflow::DataType type, void* data, size_t bytes);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_CHECK_VALUE_SUMMARY_H_
