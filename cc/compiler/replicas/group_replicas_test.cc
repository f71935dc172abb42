#include "cc/compiler/replicas/group_replicas.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cc/compiler/hlo/test_module.h"
#include "gtest/gtest.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace tf_tpu_ext {
namespace {

TEST(GroupSizeTest, LeavesAGroupForEachProcessor) {
  EXPECT_EQ(GroupSize(8, 2), 4);
  EXPECT_EQ(GroupSize(8, 3), 2);
  EXPECT_EQ(GroupSize(8, 1), 4);
  EXPECT_EQ(GroupSize(8, 8), 1);
  EXPECT_EQ(GroupSize(8, 64), 1);
  EXPECT_EQ(GroupSize(2, 1), 1);
  EXPECT_EQ(GroupSize(5, 2), 1);
  EXPECT_EQ(GroupSize(6, 2), 3);
  EXPECT_EQ(GroupSize(1, 2), 1);
}

// A loop that updates weights with values computed from ROWS rows of each replica.
constexpr char kTrainingLoop[] = R"(
HloModule step

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

condition {
  state = (s32[], f32[16,16], f32[ROWS,16]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  three = s32[] constant(3)
  ROOT goes_on = pred[] compare(i, three), direction=LT
}

body {
  state = (s32[], f32[16,16], f32[ROWS,16]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  w = f32[16,16] get-tuple-element(state), index=1
  x = f32[ROWS,16] get-tuple-element(state), index=2
  product = f32[ROWS,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  errors = f32[ROWS,16] tanh(product)
  columns = f32[16,ROWS] transpose(x), dimensions={1,0}
  gradient = f32[16,16] dot(columns, errors), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  total = f32[16,16] all-reduce(gradient), to_apply=sum
  change = f32[16,16] tanh(total)
  new = f32[16,16] subtract(w, change)
  ROOT state_after = (s32[], f32[16,16], f32[ROWS,16]) tuple(next, new, x)
}

ENTRY entry {
  weights = f32[16,16] parameter(0)
  data = f32[ROWS,16] parameter(1)
  zero = s32[] constant(0)
  begin = (s32[], f32[16,16], f32[ROWS,16]) tuple(zero, weights, data)
  end = (s32[], f32[16,16], f32[ROWS,16]) while(begin), condition=condition, body=body
  trained = f32[16,16] get-tuple-element(end), index=1
  ROOT all = (f32[16,16]) tuple(trained)
}
)";

absl::StatusOr<BatchedModule> GroupLoop(int rows, int num_replicas, int num_processors) {
  BatchOptions options;
  options.num_replicas = num_replicas;
  options.mirrored_parameters = {0};
  options.updated_parameters = {{0, 0}};
  const std::unique_ptr<xla::HloModule> module =
      ParseModule(absl::StrReplaceAll(kTrainingLoop, {{"ROWS", absl::StrCat(rows)}}));
  absl::StatusOr<BatchedModule> batched = GroupReplicas(*module, options, num_processors);
  if (batched.ok()) ExpectValid(batched->module.get());
  return batched;
}

TEST(GroupReplicasTest, ALoopThatRepeatsMoreThanItDividesIsOneGroup) {
  for (int num_processors : {2, 64}) {
    auto batched = GroupLoop(/*rows=*/2, 8, num_processors);
    ASSERT_TRUE(batched.ok()) << batched.status();
    EXPECT_EQ(batched->group_size, 8);
    for (const xla::HloComputation* computation : batched->module->computations()) {
      EXPECT_EQ(CountOps(*computation, xla::HloOpcode::kAllReduce), 0);
    }
  }
}

TEST(GroupReplicasTest, ALoopThatDividesMoreHasAGroupForEachProcessor) {
  auto batched = GroupLoop(/*rows=*/100, 8, 2);
  ASSERT_TRUE(batched.ok()) << batched.status();
  EXPECT_EQ(batched->group_size, 4);
  // With a processor for each replica, there is nothing to save.
  EXPECT_EQ(GroupLoop(/*rows=*/100, 8, 64).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(GroupReplicasTest, LargeArraysOfSingleReplicasAreNotBatched) {
  EXPECT_EQ(GroupLoop(/*rows=*/20'000, 8, 2).status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tf_tpu_ext
