// Simulated quantization: lookups in a table round its values to a few levels, as they would be
// when the table is served.
#ifndef TF_TPU_EXT_CC_EMBEDDING_QUANTIZATION_H_
#define TF_TPU_EXT_CC_EMBEDDING_QUANTIZATION_H_

#include <string>

#include "absl/status/status.h"
#include "tensorflow/core/protobuf/tpu/optimization_parameters.pb.h"

namespace tf_tpu_ext {

// Returns InvalidArgument unless the options, if enabled, give limits and at least two buckets.
absl::Status CheckQuantization(const std::string& table,
                               const tensorflow::tpu::SimulatedQuantization& options);

// The nearest of `num_buckets` values that are evenly spaced from the lower limit to the upper one.
float Quantize(const tensorflow::tpu::SimulatedQuantization& options, float value);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_EMBEDDING_QUANTIZATION_H_
