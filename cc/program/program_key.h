// The key that a compile op hands to the execute and host-transfer ops of one step: a tensor of
// three strings.
#ifndef TF_TPU_EXT_CC_PROGRAM_PROGRAM_KEY_H_
#define TF_TPU_EXT_CC_PROGRAM_PROGRAM_KEY_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "cc/base/launch_numbers.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

struct ProgramKey {
  int64_t program_id = 0;
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
