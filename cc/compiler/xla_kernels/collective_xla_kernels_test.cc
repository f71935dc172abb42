// Tests how the collective ops are lowered in a program of one replica. tests/test_collectives.py
// runs them on several.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cc/base/op_testing.h"
#include "cc/base/tensor_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

Tensor Groups(const std::vector<int32_t>& replicas, int64_t groups) {
  return MakeTensor(replicas, {groups, static_cast<int64_t>(replicas.size()) / groups});
}

const Tensor& Values() {
  static const auto* const values = new Tensor(MakeTensor<float>({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2}));
  return *values;
}

TEST(CollectiveXlaKernelsTest, AReplicaAloneKeepsItsValues) {
  const auto sum = OpTester("CrossReplicaSum").Input(Values()).Constant(Groups({0}, 1)).Run();
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(ValuesOf<float>(*sum), ValuesOf<float>(Values()));
  const auto exchanged = OpTester("AllToAll")
                             .Input(Values())
                             .Constant(Groups({0}, 1))
                             .Attr("concat_dimension", 0)
                             .Attr("split_dimension", 1)
                             .Attr("split_count", 1)
                             .Run();
  ASSERT_TRUE(exchanged.ok()) << exchanged.status();
  EXPECT_EQ(ValuesOf<float>(*exchanged), ValuesOf<float>(Values()));
  const auto permuted = OpTester("CollectivePermute")
                            .Input(Values())
                            .Constant(MakeTensor<int32_t>({0, 0}, {1, 2}))
                            .Run();
  ASSERT_TRUE(permuted.ok()) << permuted.status();
  EXPECT_EQ(ValuesOf<float>(*permuted), ValuesOf<float>(Values()));
}

TEST(CollectiveXlaKernelsTest, AReplicaThatReceivesNothingGetsZeros) {
  const auto result = OpTester("CollectivePermute")
                          .Input(Values())
                          .Constant(Tensor(tensorflow::DT_INT32, {0, 2}))
                          .Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(ValuesOf<float>(*result), std::vector<float>(8, 0.0f));
}

TEST(CollectiveXlaKernelsTest, SumsOfDynamicSizeKeepTheirSize) {
  const auto result =
      OpTester("CrossReplicaSum").DynamicInput(Values(), 0, 3).Constant(Groups({0}, 1)).Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(ValuesOf<float>(*result), std::vector<float>({1, 2, 3, 4, 5, 6}));
}

TEST(CollectiveXlaKernelsTest, RefusesReplicasThatTheProgramLacks) {
  EXPECT_EQ(OpTester("CrossReplicaSum")
                .Input(Values())
                .Constant(Groups({0, 1}, 1))
                .Compile()
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpTester("CollectivePermute")
                .Input(Values())
                .Constant(MakeTensor<int32_t>({0, 1}, {1, 2}))
                .Compile()
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CollectiveXlaKernelsTest, AnExchangeNeedsFixedSizes) {
  const auto compile = [](int dimension) {
    return OpTester("AllToAll")
        .DynamicInput(Values(), dimension, 1)
        .Constant(Groups({0}, 1))
        .Attr("concat_dimension", 0)
        .Attr("split_dimension", 0)
        .Attr("split_count", 1)
        .Compile()
        .status();
  };
  EXPECT_NE(compile(0).message().find("may differ in size between replicas"), std::string::npos)
      << compile(0);
  EXPECT_TRUE(compile(1).ok()) << compile(1);
}

}  // namespace
}  // namespace tf_tpu_ext
