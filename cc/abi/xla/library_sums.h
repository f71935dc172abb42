// Whether XLA gives sums to a library.
#ifndef TF_TPU_EXT_CC_ABI_XLA_LIBRARY_SUMS_H_
#define TF_TPU_EXT_CC_ABI_XLA_LIBRARY_SUMS_H_

#include "cc/abi/xla/minor.h"

#if TF_TPU_EXT_TENSORFLOW_MINOR >= 21
#include "absl/algorithm/container.h"
#include "xla/debug_options_flags.h"
#include "xla/xla.pb.h"
#endif

namespace tf_tpu_ext {

// Whether XLA computes large sums with YNNPACK, as it does from TensorFlow 2.21 on unless XLA_FLAGS
// says otherwise.
inline bool LibraryComputesSums() {
#if TF_TPU_EXT_TENSORFLOW_MINOR >= 21
  static const bool computes =
      absl::c_linear_search(xla::GetDebugOptionsFromFlags().xla_cpu_experimental_ynn_fusion_type(),
                            xla::DebugOptions::LIBRARY_FUSION_TYPE_REDUCE);
  return computes;
#else
  return false;
#endif
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_ABI_XLA_LIBRARY_SUMS_H_
