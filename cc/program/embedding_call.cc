#include "cc/program/embedding_call.h"

#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

constexpr char kNumGradients[] = "gradients";

}  // namespace

std::string Encode(const ReceiveActivationsCall& call) {
  CallAttributes attributes;
  attributes.SetString(kOpAttribute, call.op);
  return attributes.ToText();
}

std::string Encode(const SendGradientsCall& call) {
  CallAttributes attributes;
  attributes.SetString(kOpAttribute, call.op);
  attributes.SetInteger(kNumGradients, call.num_gradients);
  return attributes.ToText();
}

absl::StatusOr<ReceiveActivationsCall> DecodeReceiveActivationsCall(
    const CallAttributes& attributes) {
  ReceiveActivationsCall call;
  TF_ASSIGN_OR_RETURN(call.op, attributes.GetString(kOpAttribute));
  return call;
}

absl::StatusOr<SendGradientsCall> DecodeSendGradientsCall(const CallAttributes& attributes) {
  SendGradientsCall call;
  TF_ASSIGN_OR_RETURN(call.op, attributes.GetString(kOpAttribute));
  TF_ASSIGN_OR_RETURN(call.num_gradients, attributes.GetCount(kNumGradients));
  return call;
}

}  // namespace tf_tpu_ext
