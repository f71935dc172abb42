#include "cc/program/compiled_program.h"

#include <vector>

#include "cc/base/core_numbers.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

TEST(CompiledProgramTest, SlotsCountTheCoresOfOneReplicaAfterTheOther) {
  CompiledProgram compiled;
  EXPECT_EQ(compiled.num_slots(), 1);
  EXPECT_EQ(compiled.ReplicaOf(Slot(0)), Replica(0));
  compiled.num_replicas = 3;
  compiled.num_cores_per_replica = 2;
  ASSERT_EQ(compiled.num_slots(), 6);
  std::vector<int> replicas;
  for (Slot slot : NumbersBelow<Slot>(6)) replicas.push_back(compiled.ReplicaOf(slot).value());
  EXPECT_EQ(replicas, (std::vector<int>{0, 0, 1, 1, 2, 2}));
}

}  // namespace
}  // namespace tf_tpu_ext
