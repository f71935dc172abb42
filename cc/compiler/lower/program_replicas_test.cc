#include "cc/compiler/lower/program_replicas.h"

#include "gtest/gtest.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace tf_tpu_ext {
namespace {

TEST(ProgramReplicasTest, AreToldToTheKernelsOfOneCompilation) {
  tensorflow::ResourceMgr one, other;
  ASSERT_TRUE(SetProgramReplicas(&one, 4).ok());
  EXPECT_EQ(GetProgramReplicas(&one), 4);
  EXPECT_EQ(GetProgramReplicas(&one), 4);
  EXPECT_EQ(GetProgramReplicas(&other), 1);
}

TEST(ProgramReplicasTest, CannotBeToldTwice) {
  tensorflow::ResourceMgr manager;
  ASSERT_TRUE(SetProgramReplicas(&manager, 4).ok());
  EXPECT_FALSE(SetProgramReplicas(&manager, 2).ok());
  EXPECT_EQ(GetProgramReplicas(&manager), 4);
}

}  // namespace
}  // namespace tf_tpu_ext
