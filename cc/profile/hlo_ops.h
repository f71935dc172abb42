// What is known about the ops of a compiled module.
#ifndef TF_TPU_EXT_CC_PROFILE_HLO_OPS_H_
#define TF_TPU_EXT_CC_PROFILE_HLO_OPS_H_

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

struct HloOp {
  // Starts at 1; unique in the module.
  int64_t symbol = 0;
  // The instruction in HLO notation.
  std::string text;
  // In XLA's terms: "convolution fusion", "all-reduce", ...
  std::string category;
  // The TensorFlow op, as "name:type"; empty if there is none.
  std::string tf_op;
  // "file:line", if known.
  std::string source;
  // From XLA's cost analysis, which does not know what custom calls do.
  int64_t flops = 0;
  int64_t bytes_accessed = 0;
  // Whether it consists of ops that a profile shows, too.
  bool has_parts = false;
};

// By name. An op that is not listed here does not belong to the module.
using HloOps = absl::flat_hash_map<std::string, HloOp>;

HloOps DescribeOps(const xla::HloModule& module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROFILE_HLO_OPS_H_
