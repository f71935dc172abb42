#include "cc/program/program_key.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
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
    const Tensor tensor = EncodeProgramKey({number, "", LaunchId(42)}, nullptr);
    absl::StatusOr<ProgramKey> key = DecodeProgramKey(tensor);
    ASSERT_TRUE(key.ok()) << key.status();
    EXPECT_EQ(key->program_id, number);
    EXPECT_EQ(key->pod_program, "");
    EXPECT_EQ(key->launch_id, LaunchId(42));
  }
}

TEST(ProgramKeyTest, AProgramOfAPodComesBackByItsName) {
  // The compile op chooses the names, including one that looks like a number, or like a key.
  for (const char* name : {"train/1a2b", "7", "pod:7", " ", "with\nlines: and colons"}) {
    // The number belongs to another process.
    const Tensor tensor = EncodeProgramKey({5, name, LaunchId(-42)}, nullptr);
    absl::StatusOr<ProgramKey> key = DecodeProgramKey(tensor);
    ASSERT_TRUE(key.ok()) << key.status();
    EXPECT_EQ(key->pod_program, name);
    EXPECT_EQ(key->program_id, 0);
    EXPECT_EQ(key->launch_id, LaunchId(-42));
  }
}

TEST(ProgramKeyTest, CompilationFailureComesBackWithItsCode) {
  const Tensor tensor =
      EncodeCompilationFailure(absl::UnimplementedError("no kernel for op Where"));
  const absl::Status status = DecodeProgramKey(tensor).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_EQ(status.message(), "Compilation failure: no kernel for op Where");
}

TEST(ProgramKeyTest, EveryErrorComesBackWithItsCode) {
  for (int code = 1; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    const Tensor tensor =
        EncodeCompilationFailure(absl::Status(static_cast<absl::StatusCode>(code), ""));
    const absl::Status status = DecodeProgramKey(tensor).status();
    EXPECT_EQ(status.raw_code(), code);
    EXPECT_EQ(status.message(), "Compilation failure: ");
  }
}

TEST(ProgramKeyTest, KeepsTheProgramAsLongAsAnyTensorOfItLives) {
  auto program = std::make_shared<int>(7);
  const std::weak_ptr<int> watched = program;
  auto first = std::make_unique<Tensor>(EncodeProgramKey({1, "", LaunchId(2)}, std::move(program)));
  auto second = std::make_unique<Tensor>(*first);
  first = nullptr;
  EXPECT_FALSE(watched.expired());
  EXPECT_TRUE(DecodeProgramKey(*second).ok());
  second = nullptr;
  EXPECT_TRUE(watched.expired());
}

TEST(ProgramKeyTest, OtherTensorsAreRefusedWithAdvice) {
  const Tensor others[] = {
      Strings({}),
      Strings({"1", "2"}),
      Strings({"1", "2", "", ""}),
      Strings({"", "", ""}),
      Strings({"one", "2", ""}),
      Strings({"1", "2x", ""}),
      Strings({"pod:train", "2x", ""}),
      Strings({"pod", "2", ""}),
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
