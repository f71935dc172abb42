#include "cc/base/memory.h"

#include "gtest/gtest.h"
#include "tensorflow/core/framework/allocator.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

// A host that has run out of memory.
class NoMemory : public tensorflow::Allocator {
 public:
  std::string Name() override { return "no memory"; }
  void* AllocateRaw(size_t, size_t) override { return nullptr; }
  void DeallocateRaw(void*) override {}
};

TEST(CheckMemoryTest, ReportsWhatDidNotFit) {
  NoMemory allocator;
  const Tensor tensor(&allocator, tensorflow::DT_FLOAT, TensorShape({2, 3}));
  EXPECT_EQ(CheckMemory(tensor, "Program train", "a result on each core"),
            absl::ResourceExhaustedError(
                "Program train needs 24 bytes of memory for a result on each core, which the host "
                "does not have. Use a smaller batch for each core, or fewer cores."));
}

TEST(CheckMemoryTest, WhatHasMemoryOrNeedsNoneIsRight) {
  NoMemory allocator;
  EXPECT_TRUE(CheckMemory(Tensor(&allocator, tensorflow::DT_FLOAT, TensorShape({0})), "", "").ok());
  EXPECT_TRUE(CheckMemory(Tensor(tensorflow::DT_FLOAT, TensorShape({1})), "", "").ok());
}

}  // namespace
}  // namespace tf_tpu_ext
