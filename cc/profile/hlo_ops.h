// What is known of the ops of a compiled module.
#ifndef TF_TPU_EXT_CC_PROFILE_HLO_OPS_H_
#define TF_TPU_EXT_CC_PROFILE_HLO_OPS_H_

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

struct HloOp {
  // From 1, unique in the module.
  int64_t symbol = 0;
  // The instruction in the notation of HLO.
  std::string text;
  // In XLA's words: "convolution fusion", "all-reduce", ...
  std::string category;
  // The op of TensorFlow, as "name:type"; empty if it has none.
  std::string tf_op;
  // "file:line", if known.
  std::string source;
  // By XLA's cost analysis, which knows nothing of what custom calls do.
  int64_t flops = 0;
  int64_t bytes_accessed = 0;
};

// By name. An op that the module does not have here is none of its own.
using HloOps = absl::flat_hash_map<std::string, HloOp>;

HloOps DescribeOps(const xla::HloModule& module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROFILE_HLO_OPS_H_
