#include "cc/program/probe_call.h"

#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

constexpr char kProbe[] = "probe";

}  // namespace

std::string Encode(const ProbeCall& call) {
  CallAttributes attributes;
  attributes.SetInteger(kProbe, call.probe);
  attributes.SetString(kDynamicAttribute, EncodeDynamicDimensions(call.dynamic));
  return attributes.ToText();
}

absl::StatusOr<ProbeCall> DecodeProbeCall(const CallAttributes& attributes) {
  ProbeCall call;
  TF_ASSIGN_OR_RETURN(call.probe, attributes.GetCount(kProbe));
  TF_ASSIGN_OR_RETURN(const std::string dynamic, attributes.GetString(kDynamicAttribute));
  TF_ASSIGN_OR_RETURN(call.dynamic, DecodeDynamicDimensions(dynamic));
  return call;
}

}  // namespace tf_tpu_ext
