// The key that a compile op hands to the execute and host-transfer ops of one step: a tensor of
// three strings. In a pod it goes to other hosts too.
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
  // A number of this process; not used where `pod_program` is set.
  int64_t program_id = 0;
  // What all hosts of a pod call the program, each of which has compiled its own; else empty.
  std::string pod_program;
  // Names one step: all ops of all its replicas share it.
  LaunchId launch_id;
};

inline constexpr int kProgramKeySize = 3;

// The tensor shares `program`, which lives as long as somebody may still look for it by the key.
tensorflow::Tensor EncodeProgramKey(const ProgramKey& key, std::shared_ptr<const void> program);

// The key of a program that could not be compiled: decoding it gives `status`.
tensorflow::Tensor EncodeCompilationFailure(const absl::Status& status);

absl::StatusOr<ProgramKey> DecodeProgramKey(const tensorflow::Tensor& tensor);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_PROGRAM_KEY_H_
