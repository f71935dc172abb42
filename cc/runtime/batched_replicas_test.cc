#include "cc/runtime/batched_replicas.h"

#include <vector>

#include "cc/base/tensor_testing.h"
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

constexpr ArgumentNumber kMirrored(0);
constexpr ArgumentNumber kBatched(1);
constexpr OutputNumber kShared(0);
constexpr OutputNumber kOwn(1);

BatchedReplicas BatchOfTwo() {
  BatchedReplicas batched;
  batched.group_size = 2;
  batched.batched_arguments = {false, true};
  batched.batched_outputs = {false, true};
  batched.mirrored_arguments = {kMirrored};
  return batched;
}

TEST(BatchedReplicasTest, EqualBytesMayRunBatched) {
  const Arguments first = {Numbers({1, 2}), Numbers({3})};
  const Arguments equal = {Numbers({1, 2}), Numbers({4})};
  EXPECT_TRUE(CanRunBatched(BatchOfTwo(), {&first, &equal}));
}

TEST(BatchedReplicasTest, AnotherValueMayNot) {
  const Arguments first = {Numbers({1, 2}), Numbers({3})};
  const Arguments other = {Numbers({1, 5}), Numbers({3})};
  EXPECT_FALSE(CanRunBatched(BatchOfTwo(), {&first, &other}));
  EXPECT_FALSE(CanRunBatched(BatchOfTwo(), {&first, &first, &first, &other}));
}

TEST(BatchedReplicasTest, AnotherShapeMayNot) {
  const Arguments first = {Numbers({1, 2}), Numbers({3})};
  const Arguments longer = {first[kMirrored], Numbers({3, 4})};
  EXPECT_FALSE(CanRunBatched(BatchOfTwo(), {&first, &longer}));
}

TEST(BatchedReplicasTest, BatchesArguments) {
  const Arguments first = {Numbers({1, 2}), Numbers({3, 4})};
  const Arguments second = {first[kMirrored], Numbers({5, 6})};
  const auto arguments = BatchArguments(BatchOfTwo(), {&first, &second});
  ASSERT_TRUE(arguments.ok()) << arguments.status();
  EXPECT_EQ((*arguments)[kMirrored].data(), first[kMirrored].data());
  EXPECT_EQ((*arguments)[kBatched].shape(), TensorShape({2, 2}));
  EXPECT_EQ(ValuesOf<float>((*arguments)[kBatched]), (std::vector<float>{3, 4, 5, 6}));
}

TEST(BatchedReplicasTest, UnbatchesOutputs) {
  Tensor rows(tensorflow::DT_FLOAT, TensorShape({2, 2}));
  for (int i = 0; i < 4; ++i) rows.flat<float>()(i) = i;
  const Tensor shared = Numbers({7});
  const auto outputs = UnbatchOutputs(BatchOfTwo(), {shared, rows});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_EQ(outputs->size(), 2);
  EXPECT_EQ((*outputs)[1][kShared].data(), shared.data());
  EXPECT_EQ(ValuesOf<float>((*outputs)[0][kOwn]), (std::vector<float>{0, 1}));
  EXPECT_EQ(ValuesOf<float>((*outputs)[1][kOwn]), (std::vector<float>{2, 3}));
}

}  // namespace
}  // namespace tf_tpu_ext
