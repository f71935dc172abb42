#ifndef TF_TPU_EXT_CC_PROGRAM_COMPILATION_RECORD_H_
#define TF_TPU_EXT_CC_PROGRAM_COMPILATION_RECORD_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace tf_tpu_ext {

// One compilation, as compilation_stats() reports it.
struct CompilationRecord {
  int64_t program_id = 0;
  std::string name;
  std::string argument_shapes;
  int num_replicas = 1;
  int num_cores_per_replica = 1;
  // How many replicas run as one program.
  int batched_replicas = 1;
  absl::Duration lowering;
  absl::Duration building;
  // Whether all its machine code came from the CompilationCache.
  bool restored = false;
  // Ops that TensorFlow's own kernels compute.
  int64_t tensorflow_kernels = 0;
  // Roughly how much memory the program takes.
  int64_t bytes = 0;
  int64_t hits = 0;
  // Empty if the compilation succeeded.
  std::string error;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_COMPILATION_RECORD_H_
