// The custom call through which a watched program shows one of its values.
#ifndef TF_TPU_EXT_CC_PROGRAM_PROBE_CALL_H_
#define TF_TPU_EXT_CC_PROGRAM_PROBE_CALL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cc/base/call_attributes.h"
#include "cc/program/dynamic_dimensions.h"

namespace tf_tpu_ext {

inline constexpr char kProbeTarget[] = "tf_tpu_ext_probe";

// Operands: the value, followed by the sizes of its dynamic dimensions, and a token. Result: a
// token.
struct ProbeCall {
  // Its index in Probes::probes.
  int probe = 0;
  std::vector<DynamicDimension> dynamic;
};

// Encodes the call as the backend_config of an instruction.
std::string Encode(const ProbeCall& call);
absl::StatusOr<ProbeCall> DecodeProbeCall(const CallAttributes& attributes);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_PROBE_CALL_H_
