#include "cc/base/tensor_copy.h"

#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Copies from an array that holds its own indices, and compares element by element.
template <typename T>
void Check(DataType type, const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  const TensorShape from_shape(from), to_shape(to);
  std::vector<T> padded(from_shape.num_elements());
  for (size_t i = 0; i < padded.size(); ++i) padded[i] = static_cast<T>(i % 127 + 1);
  Tensor copy(type, to_shape);
  auto flat = copy.flat<T>();
  flat.setZero();
  CopyLeadingBlock(padded.data(), from_shape, &copy);
  for (int64_t i = 0; i < to_shape.num_elements(); ++i) {
    int64_t rest = i, stride = 1, source = 0;
    for (int d = static_cast<int>(to.size()) - 1; d >= 0; --d) {
      source += rest % to[d] * stride;
      rest /= to[d];
      stride *= from[d];
    }
    ASSERT_EQ(flat(i), padded[source]) << "element " << i << " of " << to_shape.DebugString()
                                       << " out of " << from_shape.DebugString();
  }
}

TEST(CopyLeadingBlockTest, WholeArrays) {
  Check<float>(tensorflow::DT_FLOAT, {}, {});
  Check<float>(tensorflow::DT_FLOAT, {5}, {5});
  Check<float>(tensorflow::DT_FLOAT, {2, 3, 4}, {2, 3, 4});
}

TEST(CopyLeadingBlockTest, CutInOnePlace) {
  Check<int32_t>(tensorflow::DT_INT32, {7}, {3});
  Check<int32_t>(tensorflow::DT_INT32, {4, 5}, {2, 5});
  Check<int32_t>(tensorflow::DT_INT32, {4, 5}, {4, 2});
  Check<int32_t>(tensorflow::DT_INT32, {3, 4, 5}, {3, 2, 5});
}

TEST(CopyLeadingBlockTest, CutInSeveralPlaces) {
  Check<int32_t>(tensorflow::DT_INT32, {4, 5}, {3, 2});
  Check<int32_t>(tensorflow::DT_INT32, {3, 4, 5, 6}, {2, 4, 3, 6});
  Check<int32_t>(tensorflow::DT_INT32, {2, 2, 2, 2, 2}, {1, 2, 1, 2, 1});
}

TEST(CopyLeadingBlockTest, EmptyArrays) {
  Check<float>(tensorflow::DT_FLOAT, {4, 5}, {0, 5});
  Check<float>(tensorflow::DT_FLOAT, {4, 5}, {4, 0});
  Check<float>(tensorflow::DT_FLOAT, {0, 5}, {0, 3});
}

TEST(CopyLeadingBlockTest, RandomShapesAndElementSizes) {
  std::mt19937 random(20250101);
  const auto pick = [&random](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 500; ++round) {
    std::vector<int64_t> from(pick(0, 5)), to;
    for (int64_t& size : from) size = pick(1, 6);
    for (int64_t size : from) to.push_back(pick(0, 1) ? size : pick(0, size));
    switch (pick(0, 2)) {
      case 0:
        Check<int8_t>(tensorflow::DT_INT8, from, to);
        break;
      case 1:
        Check<float>(tensorflow::DT_FLOAT, from, to);
        break;
      default:
        Check<tensorflow::complex128>(tensorflow::DT_COMPLEX128, from, to);
    }
  }
}

TEST(TensorCopyTest, CopiesABlockToTheSamePlace) {
  Tensor from(DataType::DT_INT32, TensorShape({3, 4, 2}));
  for (int i = 0; i < 24; ++i) from.flat<int32_t>()(i) = i + 1;
  Tensor to(DataType::DT_INT32, from.shape());
  to.flat<int32_t>().setConstant(-1);
  CopyLeadingBlock(from, TensorShape({2, 3, 2}), &to);
  const auto before = from.tensor<int32_t, 3>();
  const auto after = to.tensor<int32_t, 3>();
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 4; ++j) {
      for (int k = 0; k < 2; ++k) {
        EXPECT_EQ(after(i, j, k), i < 2 && j < 3 ? before(i, j, k) : -1);
      }
    }
  }
  CopyLeadingBlock(from, TensorShape({0, 4, 2}), &to);
  CopyLeadingBlock(from, from.shape(), &to);
  EXPECT_EQ(after(2, 3, 1), 24);
}

}  // namespace
}  // namespace tf_tpu_ext
