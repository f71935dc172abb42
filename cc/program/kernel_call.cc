#include "cc/program/kernel_call.h"

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/lib/strings/proto_serialization.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::NodeDef;

constexpr char kName[] = "name";
constexpr char kNode[] = "node";
constexpr char kBefore[] = "before";
constexpr char kWork[] = "work";

// Equal nodes have equal texts, and therefore so do equal programs.
std::string EncodeNode(const NodeDef& node) {
  std::string serialized;
  tensorflow::SerializeToStringDeterministic(node, &serialized);
  return absl::WebSafeBase64Escape(serialized);
}

absl::StatusOr<NodeDef> DecodeNode(const std::string& text) {
  std::string serialized;
  NodeDef node;
  if (!absl::WebSafeBase64Unescape(text, &serialized) || !node.ParseFromString(serialized)) {
    return absl::InternalError(absl::StrCat("Expected a kernel's node; got '", text, "'."));
  }
  return node;
}

}  // namespace

std::string Encode(const KernelCall& call) {
  CallAttributes attributes;
  attributes.SetString(kOpAttribute, call.op);
  attributes.SetString(kName, call.name);
  attributes.SetString(kNode, EncodeNode(call.node));
  if (call.before.has_value()) attributes.SetString(kBefore, EncodeNode(*call.before));
  attributes.SetInteger(kWork, call.work);
  return attributes.ToText();
}

absl::StatusOr<KernelCall> DecodeKernelCall(absl::string_view backend_config) {
  TF_ASSIGN_OR_RETURN(const CallAttributes attributes, CallAttributes::Parse(backend_config));
  return DecodeKernelCall(attributes);
}

absl::StatusOr<KernelCall> DecodeKernelCall(const CallAttributes& attributes) {
  KernelCall call;
  TF_ASSIGN_OR_RETURN(call.op, attributes.GetString(kOpAttribute));
  TF_ASSIGN_OR_RETURN(call.name, attributes.GetString(kName));
  TF_ASSIGN_OR_RETURN(const std::string node, attributes.GetString(kNode));
  TF_ASSIGN_OR_RETURN(call.node, DecodeNode(node));
  if (attributes.Has(kBefore)) {
    TF_ASSIGN_OR_RETURN(const std::string before, attributes.GetString(kBefore));
    TF_ASSIGN_OR_RETURN(call.before, DecodeNode(before));
  }
  TF_ASSIGN_OR_RETURN(call.work, attributes.GetInteger(kWork));
  return call;
}

}  // namespace tf_tpu_ext
