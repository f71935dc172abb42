// Serialized machine code, as a later process restores it.
#ifndef TF_TPU_EXT_CC_ABI_XLA_SERIALIZED_CODE_H_
#define TF_TPU_EXT_CC_ABI_XLA_SERIALIZED_CODE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/abi/xla/minor.h"

#if TF_TPU_EXT_TENSORFLOW_MINOR < 20
#include <vector>

#include "tsl/platform/protobuf.h"
#include "xla/backends/cpu/runtime/thunk.pb.h"
#include "xla/pjrt/compile_options.pb.h"
#include "xla/service/cpu/executable.pb.h"
#endif

namespace tf_tpu_ext {

#if TF_TPU_EXT_TENSORFLOW_MINOR < 20

// Removes the numbers of iterations that say no more than that they are unknown.
inline void RemoveUnknownTripCounts(tsl::protobuf::Message* message) {
  if (message->GetDescriptor() == xla::cpu::WhileThunkProto::descriptor()) {
    auto& loop = static_cast<xla::cpu::WhileThunkProto&>(*message);
    if (!loop.trip_count().contains_value()) loop.clear_trip_count();
  }
  const tsl::protobuf::Reflection& fields = *message->GetReflection();
  std::vector<const tsl::protobuf::FieldDescriptor*> present;
  fields.ListFields(*message, &present);
  for (const tsl::protobuf::FieldDescriptor* field : present) {
    if (field->cpp_type() != tsl::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      RemoveUnknownTripCounts(fields.MutableMessage(message, field));
      continue;
    }
    for (int i = 0; i < fields.FieldSize(*message, field); ++i) {
      RemoveUnknownTripCounts(fields.MutableRepeatedMessage(message, field, i));
    }
  }
}

#endif

// Makes code restorable. In 2.19, XLA would restore a loop whose number of iterations is unknown as
// one that has none.
inline absl::StatusOr<std::string> Restorable(std::string code) {
#if TF_TPU_EXT_TENSORFLOW_MINOR < 20
  xla::ExecutableAndOptionsProto executable;
  xla::cpu::CompilationResultProto compiled;
  if (!executable.ParseFromString(code) ||
      !compiled.ParseFromString(executable.serialized_executable())) {
    return absl::InternalError("XLA's serialized code has an unknown format.");
  }
  RemoveUnknownTripCounts(compiled.mutable_thunk_sequence());
  executable.set_serialized_executable(compiled.SerializeAsString());
  return executable.SerializeAsString();
#else
  return code;
#endif
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_ABI_XLA_SERIALIZED_CODE_H_
