#include "cc/program/transfer_call.h"

#include <cstdint>

#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

constexpr char kSend[] = "send";
constexpr char kReceive[] = "receive";
constexpr char kCountedAs[] = "counted_as";
constexpr char kCountsCall[] = "counts_call";
constexpr char kMember[] = "member";

}  // namespace

std::string Encode(const TransferCall& call) {
  CallAttributes attributes;
  attributes.SetString(kOpAttribute, call.op);
  attributes.SetString(kSend, call.send);
  attributes.SetString(kReceive, call.receive);
  attributes.SetString(kDynamicAttribute, EncodeDynamicDimensions(call.dynamic));
  attributes.SetString(kCountedAs, call.counted_as);
  attributes.SetInteger(kCountsCall, call.counts_call ? 1 : 0);
  if (call.member.has_value()) attributes.SetInteger(kMember, *call.member);
  return attributes.ToText();
}

absl::StatusOr<TransferCall> DecodeTransferCall(absl::string_view backend_config) {
  TF_ASSIGN_OR_RETURN(const CallAttributes attributes, CallAttributes::Parse(backend_config));
  return DecodeTransferCall(attributes);
}

absl::StatusOr<TransferCall> DecodeTransferCall(const CallAttributes& attributes) {
  TransferCall call;
  TF_ASSIGN_OR_RETURN(call.op, attributes.GetString(kOpAttribute));
  TF_ASSIGN_OR_RETURN(call.send, attributes.GetString(kSend));
  TF_ASSIGN_OR_RETURN(call.receive, attributes.GetString(kReceive));
  TF_ASSIGN_OR_RETURN(const std::string dynamic, attributes.GetString(kDynamicAttribute));
  TF_ASSIGN_OR_RETURN(call.dynamic, DecodeDynamicDimensions(dynamic));
  TF_ASSIGN_OR_RETURN(call.counted_as, attributes.GetString(kCountedAs));
  TF_ASSIGN_OR_RETURN(const int64_t counts_call, attributes.GetInteger(kCountsCall));
  call.counts_call = counts_call != 0;
  if (attributes.Has(kMember)) {
    TF_ASSIGN_OR_RETURN(call.member, attributes.GetCount(kMember));
  }
  return call;
}

}  // namespace tf_tpu_ext
