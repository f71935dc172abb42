// The key that a compile op passes to the execute and host-transfer ops of one step: a tensor of
// three strings. In a pod it also goes to other hosts.
#ifndef TF_TPU_EXT_CC_PROGRAM_PROGRAM_KEY_H_
#define TF_TPU_EXT_CC_PROGRAM_PROGRAM_KEY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cc/base/launch_numbers.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

struct ProgramKey {
  // A number in this process; not used if `pod_program` is set.
  int64_t program_id = 0;
  // The name by which all hosts of a pod know the program, of which each has compiled its own copy;
  // empty without a pod.
  std::string pod_program;
  // Identifies one step: all ops of all its replicas share it.
  LaunchId launch_id;
};

inline constexpr int kProgramKeySize = 3;

// The tensor shares `program`, which lives as long as something may still look it up by the key.
tensorflow::Tensor EncodeProgramKey(const ProgramKey& key, std::shared_ptr<const void> program);

// The key of a program that could not be compiled: decoding it returns `status`.
tensorflow::Tensor EncodeCompilationFailure(const absl::Status& status);

absl::StatusOr<ProgramKey> DecodeProgramKey(const tensorflow::Tensor& tensor);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_PROGRAM_KEY_H_
