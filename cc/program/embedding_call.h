// The custom calls through which a running program uses the embedding engine.
#ifndef TF_TPU_EXT_CC_PROGRAM_EMBEDDING_CALL_H_
#define TF_TPU_EXT_CC_PROGRAM_EMBEDDING_CALL_H_

#include <string>

#include "absl/status/statusor.h"
#include "cc/base/call_attributes.h"

namespace tf_tpu_ext {

inline constexpr char kReceiveActivationsTarget[] = "tf_tpu_ext_receive_activations";
inline constexpr char kSendGradientsTarget[] = "tf_tpu_ext_send_gradients";

// Results: the activations of the core's next batch.
struct ReceiveActivationsCall {
  // The original TensorFlow op, for errors.
  std::string op;
};

// Operands: the gradients, followed by scalars, the dynamic inputs.
struct SendGradientsCall {
  // The original TensorFlow op, for errors.
  std::string op;
  // The number of operands that are gradients.
  int num_gradients = 0;
};

// Encodes the call as the backend_config of an instruction.
std::string Encode(const ReceiveActivationsCall& call);
std::string Encode(const SendGradientsCall& call);
absl::StatusOr<ReceiveActivationsCall> DecodeReceiveActivationsCall(
    const CallAttributes& attributes);
absl::StatusOr<SendGradientsCall> DecodeSendGradientsCall(const CallAttributes& attributes);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_EMBEDDING_CALL_H_
