#include "cc/program/pack.h"

#include <vector>

#include "absl/status/status.h"
#include "cc/base/custom_call_tester.h"
#include "cc/base/tensor_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

TEST(PackTest, ConcatenatesItsOperands) {
  const Tensor whole = MakeVector<float>({0, 0, 0, 0, 0, 0});
  auto call = CustomCallTester::Create(
      kPackTarget, "{}",
      {MakeVector<float>({1, 2}), MakeVector<float>({3}), MakeVector<float>({4, 5, 6})}, {whole});
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ((*call)->Run(nullptr), absl::OkStatus());
  EXPECT_EQ(ValuesOf<float>(whole), std::vector<float>({1, 2, 3, 4, 5, 6}));
}

TEST(PackTest, TakesItsOperandApart) {
  const Tensor first = MakeVector<double>({0}), second = MakeVector<double>({0, 0});
  auto call = CustomCallTester::Create(kUnpackTarget, "{}", {MakeVector<double>({1, 2, 3})},
                                       {first, second});
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ((*call)->Run(nullptr), absl::OkStatus());
  EXPECT_EQ(ValuesOf<double>(first), std::vector<double>({1}));
  EXPECT_EQ(ValuesOf<double>(second), std::vector<double>({2, 3}));
}

TEST(PackTest, PartsOfAnotherSizeAreAnError) {
  for (const std::vector<float>& part : {std::vector<float>{1, 2, 3}, std::vector<float>{1}}) {
    auto call =
        CustomCallTester::Create(kPackTarget, "{}", {MakeVector<float>({1}), MakeVector(part)},
                                 {MakeVector<float>({0, 0, 0})});
    ASSERT_TRUE(call.ok()) << call.status();
    const absl::Status status = (*call)->Run(nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_NE(status.message().find("2 parts of a packed array of 12 bytes"), std::string::npos)
        << status;
  }
}

}  // namespace
}  // namespace tf_tpu_ext
