// The custom call through which a running program calls a function on the host.
#ifndef TF_TPU_EXT_CC_PROGRAM_HOST_CALL_H_
#define TF_TPU_EXT_CC_PROGRAM_HOST_CALL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cc/base/call_attributes.h"
#include "cc/program/dynamic_dimensions.h"

namespace tf_tpu_ext {

inline constexpr char kHostCallTarget[] = "tf_tpu_ext_host_call";

// Operands: the function's arguments, followed by the sizes of dynamic dimensions. Results: the
// function's results.
struct HostCall {
  // The original TensorFlow op, for errors.
  std::string op;
  // The number of the program's host function.
  int function = 0;
  std::vector<DynamicDimension> dynamic;
};

// Encodes the call as the backend_config of an instruction.
std::string Encode(const HostCall& call);
absl::StatusOr<HostCall> DecodeHostCall(const CallAttributes& attributes);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_HOST_CALL_H_
