#include "cc/program/traced_options.h"

#include "google/protobuf/unknown_field_set.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"

namespace tf_tpu_ext {
namespace {

google::protobuf::UnknownFieldSet& UnknownFields(tensorflow::tpu::TPUCompileOptions* traced) {
  return *traced->GetReflection()->MutableUnknownFields(traced);
}

std::string Serialized(const std::string& text) {
  tensorflow::tpu::TPUCompileOptions traced;
  UnknownFields(&traced).AddLengthDelimited(kProgramOptionsField, text);
  return traced.SerializeAsString();
}

TEST(TracedOptionsTest, LeaveTheOthersAsTheyAre) {
  ProgramOptions options;
  options.share_updates = false;
  ASSERT_TRUE(ApplyTracedOptions(Serialized("stack_replicas=0"), &options).ok());
  EXPECT_FALSE(options.stack_replicas);
  EXPECT_FALSE(options.share_updates);
  EXPECT_TRUE(options.tensorflow_kernels);
}

TEST(TracedOptionsTest, LaterOnesPrevailWhenProtosAreJoined) {
  ProgramOptions options;
  const std::string joined = Serialized("stack_replicas=0") + Serialized("stack_replicas=1");
  ASSERT_TRUE(ApplyTracedOptions(joined, &options).ok());
  EXPECT_TRUE(options.stack_replicas);
}

TEST(TracedOptionsTest, RefuseDamage) {
  ProgramOptions options;
  EXPECT_TRUE(absl::IsInvalidArgument(ApplyTracedOptions("\xff", &options)));
  EXPECT_TRUE(absl::IsInvalidArgument(ApplyTracedOptions(Serialized("speed=1"), &options)));
}

TEST(TracedOptionsTest, OtherUnknownFieldsAreNone) {
  tensorflow::tpu::TPUCompileOptions traced;
  UnknownFields(&traced).AddLengthDelimited(kProgramOptionsField + 1, "speed=1");
  UnknownFields(&traced).AddVarint(kProgramOptionsField, 1);
  ProgramOptions options;
  options.stack_replicas = false;
  ASSERT_TRUE(ApplyTracedOptions(traced, &options).ok());
  EXPECT_FALSE(options.stack_replicas);
}

TEST(TracedOptionsTest, EachOptionIsReadAsItWasWritten) {
  for (const auto& [name, changed] : kProgramSwitches) {
    ProgramOptions written;
    written.*changed = !(written.*changed);
    ProgramOptions read;
    ASSERT_TRUE(ApplyTracedOptions(Serialized(ProgramOptionsText(written)), &read).ok()) << name;
    for (const auto& [other, field] : kProgramSwitches) {
      EXPECT_EQ(read.*field, written.*field) << name << ", " << other;
    }
  }
}

TEST(TracedOptionsTest, AreFoundInAFunction) {
  tensorflow::FunctionDef function;
  function.add_node_def();
  EXPECT_EQ(CompileOptionsOf(function), "");
  (*function.add_node_def()->mutable_attr())[kCompileOptionsMark].set_s("options");
  EXPECT_EQ(CompileOptionsOf(function), "options");
}

}  // namespace
}  // namespace tf_tpu_ext
