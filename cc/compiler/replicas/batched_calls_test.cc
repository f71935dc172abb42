// Tuples, calls, loops and branches of a group of replicas.
#include "cc/compiler/replicas/batching_testing.h"
#include "gtest/gtest.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace tf_tpu_ext {
namespace {

using xla::HloOpcode;

constexpr char kCalled[] = R"(
twice {
  x = f32[4] parameter(0)
  ROOT r = f32[4] add(x, x)
}

negative {
  x = f32[4] parameter(0)
  ROOT r = f32[4] negate(x)
}

three_rounds {
  state = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  three = s32[] constant(3)
  ROOT r = pred[] compare(i, three), direction=LT
}

// The second array comes to differ between replicas in the second round.
round {
  state = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[4] get-tuple-element(state), index=1
  w = f32[4] get-tuple-element(state), index=2
  sum = f32[4] add(w, x)
  ROOT r = (s32[], f32[4], f32[4]) tuple(next, x, sum)
}

own_rounds {
  state = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[4] get-tuple-element(state), index=1
  first = f32[1] slice(x), slice={[0:1]}
  f = f32[] reshape(first)
  zero = f32[] constant(0)
  own = pred[] compare(f, zero), direction=GT
  three = s32[] constant(3)
  some = pred[] compare(i, three), direction=LT
  ROOT r = pred[] and(own, some)
}
)";

class BatchedCallTest : public ::testing::TestWithParam<RuleCase> {};

TEST_P(BatchedCallTest, ComputesWhatEachReplicaDoes) { ExpectRuleHolds(GetParam(), kCalled); }

const RuleCase kCalls[] = {
    {"Tuples", R"(
  w = f32[4] parameter(0)
  x = f32[4] parameter(1)
  inner = (f32[4], f32[4]) tuple(w, x)
  outer = (f32[4], (f32[4], f32[4])) tuple(w, inner)
  kept = (f32[4], (f32[4], f32[4])) opt-barrier(outer)
  again = (f32[4], f32[4]) get-tuple-element(kept), index=1
  r = f32[4] get-tuple-element(again), index=1)",
     "f32[4]", HloOpcode::kOptimizationBarrier, 1},
    {"Call", R"(
  w = f32[4] parameter(0)
  x = f32[4] parameter(1)
  y = f32[4] call(x), to_apply=twice
  z = f32[4] call(w), to_apply=twice
  r = f32[4] subtract(y, z))",
     "f32[4]", HloOpcode::kCall, 1},
    {"LoopThatMakesADifference", R"(
  w = f32[4] parameter(0)
  x = f32[4] parameter(1)
  zero = s32[] constant(0)
  begin = (s32[], f32[4], f32[4]) tuple(zero, x, w)
  end = (s32[], f32[4], f32[4]) while(begin), condition=three_rounds, body=round
  r = f32[4] get-tuple-element(end), index=2)",
     "f32[4]", HloOpcode::kWhile, 1},
    {"LoopOfOwnRounds", R"(
  w = f32[4] parameter(0)
  x = f32[4] parameter(1)
  zero = s32[] constant(0)
  begin = (s32[], f32[4], f32[4]) tuple(zero, x, w)
  end = (s32[], f32[4], f32[4]) while(begin), condition=own_rounds, body=round
  r = f32[4] get-tuple-element(end), index=2)",
     "f32[4]", HloOpcode::kWhile, 3},
    {"BranchOfAll", R"(
  p = pred[] parameter(0)
  x = f32[4] parameter(1)
  ones = f32[4] constant({1, 1, 1, 1})
  r = f32[4] conditional(p, x, ones), true_computation=twice, false_computation=negative)",
     "f32[4]", HloOpcode::kConditional, 1},
    {"OwnBranches", R"(
  w = f32[4] parameter(0)
  i = s32[] parameter(1)
  r = f32[4] conditional(i, w, w, w), branch_computations={twice, negative, twice})",
     "f32[4]", HloOpcode::kConditional, 3},
};

INSTANTIATE_TEST_SUITE_P(Rules, BatchedCallTest, ::testing::ValuesIn(kCalls), NameOf);

}  // namespace
}  // namespace tf_tpu_ext
