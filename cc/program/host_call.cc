#include "cc/program/host_call.h"

#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

constexpr char kFunction[] = "function";

}  // namespace

std::string Encode(const HostCall& call) {
  CallAttributes attributes;
  attributes.SetString(kOpAttribute, call.op);
  attributes.SetInteger(kFunction, call.function);
  attributes.SetString(kDynamicAttribute, EncodeDynamicDimensions(call.dynamic));
  return attributes.ToText();
}

absl::StatusOr<HostCall> DecodeHostCall(const CallAttributes& attributes) {
  HostCall call;
  TF_ASSIGN_OR_RETURN(call.op, attributes.GetString(kOpAttribute));
  TF_ASSIGN_OR_RETURN(call.function, attributes.GetCount(kFunction));
  TF_ASSIGN_OR_RETURN(const std::string dynamic, attributes.GetString(kDynamicAttribute));
  TF_ASSIGN_OR_RETURN(call.dynamic, DecodeDynamicDimensions(dynamic));
  return call;
}

}  // namespace tf_tpu_ext
