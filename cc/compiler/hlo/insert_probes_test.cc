#include "cc/compiler/hlo/insert_probes.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/abi/xla/spmd_partitioner.h"
#include "cc/base/call_attributes.h"
#include "cc/compiler/hlo/test_module.h"
#include "cc/program/probe_call.h"
#include "gtest/gtest.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/service/spmd/stateful_rng_spmd_partitioner.h"

namespace tf_tpu_ext {
namespace {

// The instructions of the probes, in order.
std::vector<std::string> Instructions(const Probes& probes) {
  std::vector<std::string> instructions;
  for (const Probe& probe : probes.probes) instructions.push_back(probe.instruction);
  return instructions;
}

int NumberOf(const Probes& probes, const std::string& op) {
  for (size_t i = 0; i < probes.probes.size(); ++i) {
    if (probes.probes[i].op == op) return static_cast<int>(i);
  }
  ADD_FAILURE() << "no probe of " << op;
  return 0;
}

int CountCalls(const xla::HloModule& module) {
  int calls = 0;
  for (const xla::HloComputation* computation : module.computations()) {
    for (const xla::HloInstruction* instruction : computation->instructions()) {
      calls += instruction->IsCustomCall(kProbeTarget) ? 1 : 0;
    }
  }
  return calls;
}

TEST(InsertProbesTest, EachValueThatIsComputedHasOne) {
  std::unique_ptr<xla::HloModule> module = ParseModule(R"(
HloModule straight

ENTRY entry {
  x = f32[2,3] parameter(0)
  w = f32[3,2] parameter(1)
  one = f32[] constant(1)
  ones = f32[2,2] broadcast(one), dimensions={}
  turned = f32[2,3] transpose(w), dimensions={1,0}
  sum = f32[2,3] add(x, turned), metadata={op_name="inlined;step/sum"}
  product = f32[2,2] dot(sum, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="product"}
  shifted = f32[2,2] add(product, ones), metadata={op_name="shifted"}
  ROOT results = (f32[2,2], f32[2,3]) tuple(shifted, turned)
}
)");
  const Probes probes = InsertProbes(module.get());
  ExpectValid(module.get());
  EXPECT_EQ(Instructions(probes),
            (std::vector<std::string>{"parameter f32[2,3]", "parameter f32[3,2]", "add f32[2,3]",
                                      "dot f32[2,2]", "add f32[2,2]"}));
  EXPECT_EQ(CountCalls(*module), 5);
  EXPECT_EQ(probes.probes[0].parameter, ParameterNumber(0));
  EXPECT_EQ(probes.probes[1].parameter, ParameterNumber(1));
  EXPECT_TRUE(probes.probes[1].carries);
  const int sum = NumberOf(probes, "step/sum");
  const int product = NumberOf(probes, "product");
  // A copy in another shape stands for its source, and a constant for nothing.
  EXPECT_EQ(probes.probes[sum].operands, (std::vector<int>{0, 1}));
  EXPECT_EQ(probes.probes[product].operands, (std::vector<int>{1, sum}));
  EXPECT_EQ(probes.probes[NumberOf(probes, "shifted")].operands, std::vector<int>{product});
  ASSERT_EQ(probes.results.size(), 2);
  EXPECT_EQ(probes.results[ResultNumber(0)].probes, std::vector<int>{NumberOf(probes, "shifted")});
  EXPECT_EQ(probes.results[ResultNumber(1)].probes, std::vector<int>{1});
}

TEST(InsertProbesTest, FollowsLoopsAndBranches) {
  std::unique_ptr<xla::HloModule> module = ParseModule(R"(
HloModule loop

branch {
  value = f32[4] parameter(0)
  ROOT root = f32[4] sqrt(value), metadata={op_name="root"}
}

other {
  ROOT value = f32[4] parameter(0)
}

body {
  state = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[4] get-tuple-element(state), index=1
  kept = f32[4] get-tuple-element(state), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one), metadata={op_name="next"}
  which = s32[] remainder(i, one), metadata={op_name="which"}
  taken = f32[4] conditional(which, x, x), branch_computations={branch, other}
  product = f32[4] multiply(taken, kept), metadata={op_name="product"}
  ROOT all = (s32[], f32[4], f32[4]) tuple(next, product, kept)
}

condition {
  state = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  ten = s32[] constant(10)
  ROOT less = pred[] compare(i, ten), direction=LT
}

ENTRY entry {
  x = f32[4] parameter(0)
  zero = s32[] constant(0)
  state = (s32[], f32[4], f32[4]) tuple(zero, x, x)
  loop = (s32[], f32[4], f32[4]) while(state), condition=condition, body=body
  end = f32[4] get-tuple-element(loop), index=1
  double = f32[4] add(end, end), metadata={op_name="double"}
  ROOT results = (f32[4]) tuple(double)
}
)");
  const Probes probes = InsertProbes(module.get());
  ExpectValid(module.get());
  const int root = NumberOf(probes, "root");
  const int product = NumberOf(probes, "product");
  const int doubled = NumberOf(probes, "double");
  // In program order: the loop comes before what follows it.
  EXPECT_LT(root, product);
  EXPECT_LT(product, doubled);
  // The result of the loop is the last value that its body computed, or the initial value.
  EXPECT_EQ(probes.probes[doubled].operands, (std::vector<int>{0, product}));
  // A value that the loop only passes on is the initial value. A value that it changes has a probe
  // in each iteration.
  const std::vector<int>& of_product = probes.probes[product].operands;
  EXPECT_NE(std::find(of_product.begin(), of_product.end(), 0), of_product.end());
  EXPECT_NE(std::find(of_product.begin(), of_product.end(), root), of_product.end());
  ASSERT_EQ(probes.probes[root].operands.size(), 1u);
  const Probe& carried = probes.probes[probes.probes[root].operands[0]];
  EXPECT_TRUE(carried.carries);
  EXPECT_EQ(carried.parameter, std::nullopt);
  EXPECT_EQ(carried.operands, (std::vector<int>{0, product}));
  EXPECT_EQ(carried.computation, probes.probes[product].computation);
  EXPECT_NE(carried.computation, probes.probes[root].computation);
}

TEST(InsertProbesTest, ShowsTrueElementsOnly) {
  std::unique_ptr<xla::HloModule> module = ParseModule(R"(
HloModule padded

ENTRY entry {
  array = f32[8,4] parameter(0)
  rows = s32[] parameter(1)
  true_part = f32[<=8,4] set-dimension-size(array, rows), dimensions={0}
  double = f32[<=8,4] add(true_part, true_part), metadata={op_name="double"}
  eight = s32[] constant(8)
  resized = f32[<=8,4] set-dimension-size(double, eight), dimensions={0}, metadata={op_name="resized"}
  ROOT results = (f32[<=8,4]) tuple(resized)
}
)");
  const Probes probes = InsertProbes(module.get());
  ExpectValid(module.get());
  EXPECT_EQ(Instructions(probes),
            (std::vector<std::string>{"parameter s32[]", "set-dimension-size f32[<=8,4]",
                                      "add f32[<=8,4]", "set-dimension-size f32[<=8,4]"}));
  EXPECT_EQ(probes.probes[1].parameter, ParameterNumber(0));
  EXPECT_EQ(probes.probes[3].parameter, std::nullopt);
  int dynamic = 0;
  for (const xla::HloInstruction* each : module->entry_computation()->instructions()) {
    if (!each->IsCustomCall(kProbeTarget)) continue;
    const auto attributes = CallAttributes::Parse(each->raw_backend_config_string());
    ASSERT_TRUE(attributes.ok()) << attributes.status();
    const auto call = DecodeProbeCall(*attributes);
    ASSERT_TRUE(call.ok()) << call.status();
    dynamic += static_cast<int>(call->dynamic.size());
    EXPECT_FALSE(each->operand(0)->shape().is_dynamic());
  }
  EXPECT_EQ(dynamic, 3);
}

TEST(InsertProbesTest, OfArraysThatAreDivided) {
  std::unique_ptr<xla::HloModule> module = ParseModule(R"(
HloModule divided

ENTRY entry {
  x = f32[8,4] parameter(0), sharding={devices=[2,1]0,1}
  n = s32[] parameter(1), sharding={replicated}
  kept = f32[8,4] custom-call(x), custom_call_target="Sharding", sharding={devices=[2,1]0,1}
  root = f32[8,4] sqrt(kept), metadata={op_name="root"}
  some = f32[<=8,4] set-dimension-size(root, n), dimensions={0}
  more = f32[<=8,4] add(some, some), metadata={op_name="more"}
  ROOT results = (f32[8,4], f32[<=8,4]) tuple(root, more)
}
)");
  const Probes probes = InsertProbes(module.get(), /*divided=*/true);
  ExpectValid(module.get());
  EXPECT_EQ(Instructions(probes),
            (std::vector<std::string>{"parameter f32[8,4]", "sqrt f32[8,4]", "parameter s32[]"}));
  EXPECT_EQ(probes.probes[NumberOf(probes, "root")].operands, std::vector<int>{0});
  for (const xla::HloInstruction* each : module->entry_computation()->instructions()) {
    if (each->IsCustomCall(kProbeTarget)) EXPECT_TRUE(each->sharding().IsReplicated());
  }
}

// Cores show parts of equal size, with zeros after the end of the array.
TEST(InsertProbesTest, EachCoreShowsItsPart) {
  std::unique_ptr<xla::HloModule> module = ParseModule(R"(
HloModule divided

ENTRY entry {
  x = f32[7,4] parameter(0), sharding={devices=[2,1]0,1}
  root = f32[7,4] sqrt(x), sharding={devices=[2,1]0,1}, metadata={op_name="root"}
  ROOT results = (f32[7,4]) tuple(root), sharding={{devices=[2,1]0,1}}
}
)");
  module->mutable_config().set_num_partitions(2);
  module->mutable_config().set_use_spmd_partitioning(true);
  InsertProbes(module.get(), /*divided=*/true);
  xla::spmd::StatefulRngSpmdPartitioner partitioner(/*num_partitions=*/2, /*num_replicas=*/1);
  const auto changed = partitioner.Run(module.get());
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_EQ(CountCalls(*module), 2);
  for (const xla::HloInstruction* each : module->entry_computation()->instructions()) {
    EXPECT_NE(each->opcode(), xla::HloOpcode::kAllReduce);
    EXPECT_NE(each->opcode(), xla::HloOpcode::kAllGather);
    if (!each->IsCustomCall(kProbeTarget)) continue;
    EXPECT_EQ(each->operand(0)->shape().dimensions(0), 4);
    EXPECT_EQ(each->operand(0)->opcode(), xla::HloOpcode::kSelect);
    EXPECT_TRUE(each->HasSideEffect());
  }
}

TEST(InsertProbesTest, WhatGoesToTheHostLeavesTheProgram) {
  std::unique_ptr<xla::HloModule> module = ParseModule(R"(
HloModule host

ENTRY entry {
  x = f32[4] parameter(0)
  root = f32[4] sqrt(x), metadata={op_name="root"}
  before = token[] after-all()
  sent = token[] custom-call(root, before), custom_call_target="host", custom_call_has_side_effect=true
  ROOT results = (f32[4]) tuple(x)
}
)");
  const Probes probes = InsertProbes(module.get());
  ExpectValid(module.get());
  EXPECT_EQ(probes.to_host, std::vector<int>{NumberOf(probes, "root")});
}

}  // namespace
}  // namespace tf_tpu_ext
