#include "cc/data/element_layout.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/tstring.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::DT_BOOL;
using tensorflow::DT_FLOAT;
using tensorflow::DT_RESOURCE;
using tensorflow::DT_STRING;

std::string InMemory(const std::vector<int64_t>& words, absl::string_view rest = "") {
  std::string memory(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(int64_t));
  memory.append(rest.data(), rest.size());
  return memory;
}

std::string Floats(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

TEST(ElementLayoutTest, FindsTensors) {
  // Eleven words: two tensors, one of two floats and an empty one.
  const std::string memory =
      InMemory({2, DT_FLOAT, 88, 8, 1, 2, DT_BOOL, 96, 0, 1, 0}, Floats({1.5, -2}));
  const auto tensors = FindTensors(memory);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2);
  const auto floats = CopyTensor((*tensors)[0]);
  ASSERT_TRUE(floats.ok()) << floats.status();
  EXPECT_EQ(floats->shape(), tensorflow::TensorShape({2}));
  EXPECT_EQ(floats->flat<float>()(1), -2);
  const auto empty = CopyTensor((*tensors)[1]);
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(empty->dtype(), DT_BOOL);
  EXPECT_EQ(empty->NumElements(), 0);
}

TEST(ElementLayoutTest, CopiesStrings) {
  // Six words: one tensor of two strings, whose sizes are words 7 and 8.
  const std::string memory = InMemory({1, DT_STRING, 48, 20, 1, 2, 1, 3}, "abcd");
  const auto tensors = FindTensors(memory);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_FALSE(tensors->front().CanBeReferredTo());
  const auto strings = CopyTensor(tensors->front());
  ASSERT_TRUE(strings.ok()) << strings.status();
  EXPECT_EQ(strings->flat<tensorflow::tstring>()(0), "a");
  EXPECT_EQ(strings->flat<tensorflow::tstring>()(1), "bcd");
}

TEST(ElementLayoutTest, RefersOnlyToAlignedTensors) {
  alignas(64) char memory[256] = {};
  const auto at = [&memory](int64_t begin) {
    const std::string words = InMemory({1, DT_FLOAT, begin, 4, 0});
    std::copy(words.begin(), words.end(), memory);
    return FindTensors(absl::string_view(memory, sizeof(memory)));
  };
  EXPECT_TRUE(at(128)->front().CanBeReferredTo());
  EXPECT_FALSE(at(132)->front().CanBeReferredTo());
}

TEST(ElementLayoutTest, RefusesWhatDoesNotFit) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const std::string four = Floats({1, 2, 3, 4});
  const std::vector<std::vector<int64_t>> damaged = {
      {},
      {-1},
      {kMost},
      {2, DT_FLOAT, 48, 16, 1, 4},
      {1, kMost, 48, 16, 1, 4},
      {1, DT_RESOURCE, 48, 16, 1, 4},
      {1, DT_FLOAT, -8, 16, 1, 4},
      {1, DT_FLOAT, kMost, 16, 1, 4},
      {1, DT_FLOAT, 48, 24, 1, 6},
      {1, DT_FLOAT, 48, kMost, 1, 4},
      {1, DT_FLOAT, 48, 16, 1, 5},
      {1, DT_FLOAT, 48, 15, 1, 4},
      {1, DT_FLOAT, 48, 16, 1, -4},
      {1, DT_FLOAT, 48, 16, 500, 4},
      {1, DT_FLOAT, 48, 16, 2, kMost, 4},
      {1, DT_STRING, 48, 16, 1, 3},
  };
  for (const std::vector<int64_t>& words : damaged) {
    const absl::Status status = FindTensors(InMemory(words, four)).status();
    EXPECT_FALSE(status.ok()) << ::testing::PrintToString(words);
  }
}

TEST(ElementLayoutTest, RefusesStringsThatDoNotFit) {
  for (const int64_t size : {int64_t{-1}, int64_t{5}, std::numeric_limits<int64_t>::max()}) {
    const std::string memory = InMemory({1, DT_STRING, 48, 12, 1, 1, size}, "abcd");
    const auto tensors = FindTensors(memory);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    EXPECT_TRUE(
        absl::StrContains(CopyTensor(tensors->front()).status().message(), "a string's size"));
  }
}

}  // namespace
}  // namespace tf_tpu_ext
