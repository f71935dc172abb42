#include "cc/program/lowering.h"

#include "gtest/gtest.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace tf_tpu_ext {
namespace {

TEST(LoweringTest, IsToldToTheKernelsOfOneCompilation) {
  tensorflow::ResourceMgr one, other;
  ASSERT_TRUE(SetLowering({4, true}, &one).ok());
  EXPECT_EQ(GetLowering(&one).replicas, 4);
  EXPECT_TRUE(GetLowering(&one).for_target);
  EXPECT_EQ(GetLowering(&other).replicas, 1);
  EXPECT_FALSE(GetLowering(&other).for_target);
}

TEST(LoweringTest, CannotBeToldTwice) {
  tensorflow::ResourceMgr manager;
  ASSERT_TRUE(SetLowering({4, false}, &manager).ok());
  EXPECT_FALSE(SetLowering({2, false}, &manager).ok());
  EXPECT_EQ(GetLowering(&manager).replicas, 4);
}

}  // namespace
}  // namespace tf_tpu_ext
