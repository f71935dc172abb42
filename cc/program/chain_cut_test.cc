#include "cc/program/chain_cut.h"

#include <vector>

#include "absl/status/status.h"
#include "cc/base/custom_call_tester.h"
#include "cc/base/tensor_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

TEST(ChainCutTest, LeavesItsOperandWhereItIs) {
  const Tensor array = MakeVector<float>({1, 2, 3});
  auto call = CustomCallTester::Create(kChainCutTarget, "{}", {array}, {array});
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ((*call)->Run(nullptr), absl::OkStatus());
  EXPECT_EQ(ValuesOf<float>(array), std::vector<float>({1, 2, 3}));
}

TEST(ChainCutTest, AResultElsewhereIsAnError) {
  auto call = CustomCallTester::Create(kChainCutTarget, "{}", {MakeVector<float>({1, 2, 3})},
                                       {MakeVector<float>({0, 0, 0})});
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ((*call)->Run(nullptr).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace tf_tpu_ext
