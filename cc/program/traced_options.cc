#include "cc/program/traced_options.h"

#include "google/protobuf/unknown_field_set.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_tpu_ext {

absl::Status ApplyTracedOptions(const tensorflow::tpu::TPUCompileOptions& traced,
                                ProgramOptions* options) {
  const google::protobuf::UnknownFieldSet& fields =
      traced.GetReflection()->GetUnknownFields(traced);
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::UnknownField& field = fields.field(i);
    if (field.number() != kProgramOptionsField ||
        field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) {
      continue;
    }
    TF_RETURN_IF_ERROR(ApplyProgramOptions(field.length_delimited(), options));
  }
  return absl::OkStatus();
}

absl::Status ApplyTracedOptions(const std::string& serialized, ProgramOptions* options) {
  tensorflow::tpu::TPUCompileOptions traced;
  if (traced.ParseFromString(serialized)) return ApplyTracedOptions(traced, options);
  return absl::InvalidArgumentError(
      "The compile options of a TPU program are not a TPUCompileOptions proto. Another version of "
      "TensorFlow traced it: trace it again.");
}

std::string CompileOptionsOf(const tensorflow::FunctionDef& function) {
  for (const tensorflow::NodeDef& node : function.node_def()) {
    const auto mark = node.attr().find(kCompileOptionsMark);
    if (mark != node.attr().end()) return mark->second.s();
  }
  return "";
}

}  // namespace tf_tpu_ext
