#include "cc/runtime/stacked_replicas.h"

#include <vector>

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

Tensor Numbers(const std::vector<float>& values) {
  Tensor tensor(tensorflow::DT_FLOAT, TensorShape({static_cast<int64_t>(values.size())}));
  for (size_t i = 0; i < values.size(); ++i) tensor.flat<float>()(i) = values[i];
  return tensor;
}

std::vector<float> ValuesOf(const Tensor& tensor) {
  const auto flat = tensor.flat<float>();
  return {flat.data(), flat.data() + flat.size()};
}

constexpr ArgumentNumber kMirrored(0);
constexpr ArgumentNumber kStacked(1);
constexpr OutputNumber kShared(0);
constexpr OutputNumber kOwn(1);

StackedReplicas TwoReplicas() {
  StackedReplicas stacked;
  stacked.group_size = 2;
  stacked.stacked_arguments = {false, true};
  stacked.stacked_outputs = {false, true};
  stacked.mirrored_arguments = {kMirrored};
  return stacked;
}

TEST(StackedReplicasTest, EqualBytesMayRunStacked) {
  const Arguments first = {Numbers({1, 2}), Numbers({3})};
  const Arguments equal = {Numbers({1, 2}), Numbers({4})};
  EXPECT_TRUE(CanRunStacked(TwoReplicas(), {&first, &equal}));
}

TEST(StackedReplicasTest, AnotherValueMayNot) {
  const Arguments first = {Numbers({1, 2}), Numbers({3})};
  const Arguments other = {Numbers({1, 5}), Numbers({3})};
  EXPECT_FALSE(CanRunStacked(TwoReplicas(), {&first, &other}));
  EXPECT_FALSE(CanRunStacked(TwoReplicas(), {&first, &first, &first, &other}));
}

TEST(StackedReplicasTest, AnotherShapeMayNot) {
  const Arguments first = {Numbers({1, 2}), Numbers({3})};
  const Arguments longer = {first[kMirrored], Numbers({3, 4})};
  EXPECT_FALSE(CanRunStacked(TwoReplicas(), {&first, &longer}));
}

TEST(StackedReplicasTest, StacksArguments) {
  const Arguments first = {Numbers({1, 2}), Numbers({3, 4})};
  const Arguments second = {first[kMirrored], Numbers({5, 6})};
  const auto arguments = StackArguments(TwoReplicas(), {&first, &second});
  ASSERT_TRUE(arguments.ok()) << arguments.status();
  EXPECT_EQ((*arguments)[kMirrored].data(), first[kMirrored].data());
  EXPECT_EQ((*arguments)[kStacked].shape(), TensorShape({2, 2}));
  EXPECT_EQ(ValuesOf((*arguments)[kStacked]), (std::vector<float>{3, 4, 5, 6}));
}

TEST(StackedReplicasTest, UnstacksOutputs) {
  Tensor rows(tensorflow::DT_FLOAT, TensorShape({2, 2}));
  for (int i = 0; i < 4; ++i) rows.flat<float>()(i) = i;
  const Tensor shared = Numbers({7});
  const auto outputs = UnstackOutputs(TwoReplicas(), {shared, rows});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_EQ(outputs->size(), 2);
  EXPECT_EQ((*outputs)[1][kShared].data(), shared.data());
  EXPECT_EQ(ValuesOf((*outputs)[0][kOwn]), (std::vector<float>{0, 1}));
  EXPECT_EQ(ValuesOf((*outputs)[1][kOwn]), (std::vector<float>{2, 3}));
}

}  // namespace
}  // namespace tf_tpu_ext
