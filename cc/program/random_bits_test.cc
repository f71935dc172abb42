#include "cc/program/random_bits.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "cc/base/custom_call_tester.h"
#include "cc/base/tensor_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

absl::Status RunOn(const Tensor& states, const Tensor& bits) {
  auto call = CustomCallTester::Create(kRandomBitsTarget, "{}", {states}, {bits});
  if (!call.ok()) return call.status();
  return (*call)->Run(nullptr);
}

// The published vectors of Philox4x32-10: counter and key all zeros, and all ones.
TEST(RandomBitsTest, KnownAnswers) {
  const Tensor bits = MakeVector<uint32_t>({0, 0, 0, 0});
  ASSERT_EQ(RunOn(MakeVector<uint64_t>({0, 0, 0}), bits), absl::OkStatus());
  EXPECT_EQ(ValuesOf<uint32_t>(bits),
            std::vector<uint32_t>({0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  ASSERT_EQ(RunOn(MakeVector<uint64_t>({~0ULL, ~0ULL, ~0ULL}), bits), absl::OkStatus());
  EXPECT_EQ(ValuesOf<uint32_t>(bits),
            std::vector<uint32_t>({0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(RandomBitsTest, EachStateMakesItsPart) {
  const Tensor both = MakeVector<uint32_t>(std::vector<uint32_t>(12));
  Tensor states(tensorflow::DT_UINT64, {2, 3});
  for (int i = 0; i < 6; ++i) states.flat<uint64_t>()(i) = 7 + i;
  ASSERT_EQ(RunOn(states, both), absl::OkStatus());
  // Six of the eight numbers that two blocks have.
  const Tensor one = MakeVector<uint32_t>(std::vector<uint32_t>(6));
  ASSERT_EQ(RunOn(MakeVector<uint64_t>({10, 11, 12}), one), absl::OkStatus());
  const std::vector<uint32_t> all = ValuesOf<uint32_t>(both);
  EXPECT_EQ(std::vector<uint32_t>(all.begin() + 6, all.end()), ValuesOf<uint32_t>(one));
  EXPECT_NE(std::vector<uint32_t>(all.begin(), all.begin() + 6), ValuesOf<uint32_t>(one));
}

TEST(RandomBitsTest, TwoNumbersAreAStateToo) {
  const Tensor two = MakeVector<uint64_t>({0, 0});
  const Tensor three = MakeVector<uint64_t>({0, 0});
  ASSERT_EQ(RunOn(MakeVector<uint64_t>({5, 6}), two), absl::OkStatus());
  ASSERT_EQ(RunOn(MakeVector<uint64_t>({5, 6, 5}), three), absl::OkStatus());
  EXPECT_EQ(ValuesOf<uint64_t>(two), ValuesOf<uint64_t>(three));
}

TEST(RandomBitsTest, DamagedCalls) {
  const Tensor bits = MakeVector<uint32_t>({0, 0, 0});
  EXPECT_EQ(RunOn(MakeVector<uint64_t>({1, 2, 3, 4}), bits).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RunOn(MakeVector<float>({1, 2, 3}), bits).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RunOn(MakeVector<uint64_t>({1, 2, 3}), MakeVector<float>({0, 0})).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RunOn(Tensor(tensorflow::DT_UINT64, {2, 3}), bits).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RunOn(Tensor(tensorflow::DT_UINT64, {0, 3}), bits).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tf_tpu_ext
