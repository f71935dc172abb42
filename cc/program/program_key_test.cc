#include "cc/program/program_key.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

Tensor Strings(const std::vector<std::string>& strings) {
  Tensor tensor(tensorflow::DT_STRING, TensorShape({static_cast<int64_t>(strings.size())}));
  for (size_t i = 0; i < strings.size(); ++i) tensor.flat<tstring>()(i) = strings[i];
  return tensor;
}

TEST(ProgramKeyTest, ComesBack) {
  for (int64_t number : {int64_t{0}, int64_t{1}, std::numeric_limits<int64_t>::max()}) {
    Tensor tensor(tensorflow::DT_STRING, TensorShape({kProgramKeySize}));
    EncodeProgramKey({number, LaunchId(42)}, &tensor);
    absl::StatusOr<ProgramKey> key = DecodeProgramKey(tensor);
    ASSERT_TRUE(key.ok()) << key.status();
    EXPECT_EQ(key->program_id, number);
    EXPECT_EQ(key->launch_id, LaunchId(42));
  }
}

TEST(ProgramKeyTest, CompilationFailureComesBackWithItsCode) {
  Tensor tensor(tensorflow::DT_STRING, TensorShape({kProgramKeySize}));
  EncodeCompilationFailure(absl::UnimplementedError("no kernel for op Where"), &tensor);
  const absl::Status status = DecodeProgramKey(tensor).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_EQ(status.message(), "Compilation failure: no kernel for op Where");
}

TEST(ProgramKeyTest, EveryErrorComesBackWithItsCode) {
  for (int code = 1; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    Tensor tensor(tensorflow::DT_STRING, TensorShape({kProgramKeySize}));
    EncodeCompilationFailure(absl::Status(static_cast<absl::StatusCode>(code), ""), &tensor);
    const absl::Status status = DecodeProgramKey(tensor).status();
    EXPECT_EQ(status.raw_code(), code);
    EXPECT_EQ(status.message(), "Compilation failure: ");
  }
}

TEST(ProgramKeyTest, EncodingOverwritesAnOlderKey) {
  Tensor tensor(tensorflow::DT_STRING, TensorShape({kProgramKeySize}));
  EncodeCompilationFailure(absl::InternalError("before"), &tensor);
  EncodeProgramKey({1, LaunchId(2)}, &tensor);
  EXPECT_TRUE(DecodeProgramKey(tensor).ok());
  EncodeCompilationFailure(absl::InternalError("after"), &tensor);
  EXPECT_TRUE(absl::IsInternal(DecodeProgramKey(tensor).status()));
}

TEST(ProgramKeyTest, OtherTensorsAreRefusedWithAdvice) {
  const Tensor others[] = {
      Strings({}),
      Strings({"1", "2"}),
      Strings({"1", "2", "", ""}),
      Strings({"", "", ""}),
      Strings({"one", "2", ""}),
      Strings({"1", "2x", ""}),
      Strings({"", "none", "message"}),
      Tensor(tensorflow::DT_INT64, TensorShape({kProgramKeySize})),
      Tensor(1.0f),
  };
  for (const Tensor& tensor : others) {
    const absl::Status status = DecodeProgramKey(tensor).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << tensor.DebugString() << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "_TPUCompileMlir")) << status;
  }
}

}  // namespace
}  // namespace tf_tpu_ext
