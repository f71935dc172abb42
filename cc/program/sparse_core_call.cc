#include "cc/program/sparse_core_call.h"

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/lib/strings/proto_serialization.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

constexpr char kTable[] = "table";
constexpr char kOptions[] = "options";

// A member of a shape that is a number, and its name.
struct NumberField {
  const char* name;
  int SparseCoreShape::* member;
};

constexpr NumberField kNumberFields[] = {
    {"chips", &SparseCoreShape::chips},
    {"cores_per_chip", &SparseCoreShape::cores_per_chip},
    {"row_pointers", &SparseCoreShape::row_pointers},
    {"ids", &SparseCoreShape::ids},
    {"samples", &SparseCoreShape::samples},
    {"rows", &SparseCoreShape::rows},
    {"width", &SparseCoreShape::width},
    {"max_ids", &SparseCoreShape::max_ids},
};

CallAttributes AttributesOf(const SparseCoreShape& shape) {
  CallAttributes attributes;
  attributes.SetString(kOpAttribute, shape.op);
  attributes.SetString(kTable, shape.table);
  for (const NumberField& number : kNumberFields)
    attributes.SetInteger(number.name, shape.*number.member);
  return attributes;
}

absl::StatusOr<SparseCoreShape> ShapeOf(const CallAttributes& attributes) {
  SparseCoreShape shape;
  TF_ASSIGN_OR_RETURN(shape.op, attributes.GetString(kOpAttribute));
  TF_ASSIGN_OR_RETURN(shape.table, attributes.GetString(kTable));
  for (const NumberField& number : kNumberFields) {
    TF_ASSIGN_OR_RETURN(shape.*number.member, attributes.GetCount(number.name));
  }
  return shape;
}

template <typename Message>
std::string ToText(CallAttributes attributes, const Message& options) {
  std::string serialized;
  tensorflow::SerializeToStringDeterministic(options, &serialized);
  attributes.SetString(kOptions, absl::WebSafeBase64Escape(serialized));
  return attributes.ToText();
}

template <typename Message>
absl::Status ReadOptions(const CallAttributes& attributes, Message* options) {
  TF_ASSIGN_OR_RETURN(const std::string text, attributes.GetString(kOptions));
  std::string serialized;
  if (absl::WebSafeBase64Unescape(text, &serialized) && options->ParseFromString(serialized)) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat("Expected the options of a SparseCore call; got '", text, "'."));
}

}  // namespace

std::string Encode(const SparseLookupCall& call) {
  return ToText(AttributesOf(call.shape), call.quantization);
}

std::string Encode(const SparseUpdateCall& call) {
  return ToText(AttributesOf(call.shape), call.optimizer);
}

std::string Encode(const SparseGradientsCall& call) { return AttributesOf(call.shape).ToText(); }

absl::StatusOr<SparseLookupCall> DecodeSparseLookupCall(const CallAttributes& attributes) {
  SparseLookupCall call;
  TF_ASSIGN_OR_RETURN(call.shape, ShapeOf(attributes));
  TF_RETURN_IF_ERROR(ReadOptions(attributes, &call.quantization));
  return call;
}

absl::StatusOr<SparseUpdateCall> DecodeSparseUpdateCall(const CallAttributes& attributes) {
  SparseUpdateCall call;
  TF_ASSIGN_OR_RETURN(call.shape, ShapeOf(attributes));
  TF_RETURN_IF_ERROR(ReadOptions(attributes, &call.optimizer));
  return call;
}

absl::StatusOr<SparseGradientsCall> DecodeSparseGradientsCall(const CallAttributes& attributes) {
  SparseGradientsCall call;
  TF_ASSIGN_OR_RETURN(call.shape, ShapeOf(attributes));
  return call;
}

}  // namespace tf_tpu_ext
