// Groups of a program's replicas, where each group runs as one program.
#ifndef TF_TPU_EXT_CC_PROGRAM_BATCHED_REPLICAS_H_
#define TF_TPU_EXT_CC_PROGRAM_BATCHED_REPLICAS_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cc/base/number.h"
#include "cc/program/value_numbers.h"

namespace tf_tpu_ext {

struct CompiledProgram;

// Made by cc/compiler/replicas/batch_replicas.h.
struct BatchedReplicas {
  // The program whose replicas are the groups.
  std::shared_ptr<const CompiledProgram> program;
  int group_size = 1;
  // Whether an argument or output of the step has a first dimension over the replicas of a group.
  // The others are shared by all replicas.
  ByNumber<ArgumentNumber, bool> batched_arguments;
  ByNumber<OutputNumber, bool> batched_outputs;
  // Arguments that must be equal on all replicas.
  std::vector<ArgumentNumber> mirrored_arguments;
  // Compiles the program of a single replica, for steps whose replicas differ where they must not.
  std::function<absl::StatusOr<std::shared_ptr<const CompiledProgram>>()> build_alone;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_BATCHED_REPLICAS_H_
