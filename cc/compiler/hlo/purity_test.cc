#include "cc/compiler/hlo/purity.h"

#include <map>
#include <memory>
#include <string>

#include "cc/compiler/hlo/test_module.h"
#include "gtest/gtest.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {
namespace {

constexpr char kPurityStep[] = R"(
HloModule step

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

condition {
  state = f32[4] parameter(0)
  ROOT never = pred[] constant(false)
}

plain_body {
  state = f32[4] parameter(0)
  ROOT next = f32[4] tanh(state)
}

random_body {
  state = f32[4] parameter(0)
  low = f32[] constant(0)
  high = f32[] constant(1)
  ROOT next = f32[4] rng(low, high), distribution=rng_uniform
}

meeting_body {
  state = f32[4] parameter(0)
  ROOT next = f32[4] all-reduce(state), to_apply=sum
}

ENTRY entry {
  x = f32[4] parameter(0)
  zero = f32[] constant(0)
  one = f32[] constant(1)
  key = u64[2] parameter(1)
  begin = token[] after-all()
  elementwise = f32[4] multiply(x, x)
  reduction = f32[] reduce(x, zero), dimensions={0}, to_apply=sum
  from_state = (u64[2], u32[4]) rng-bit-generator(key), algorithm=rng_three_fry
  plain_call = f32[4] custom-call(x), custom_call_target="plain"
  random = f32[4] rng(zero, one), distribution=rng_uniform
  acting_call = f32[4] custom-call(x), custom_call_target="acting", custom_call_has_side_effect=true
  number = u32[] replica-id()
  met = f32[4] all-reduce(x), to_apply=sum
  fed = (f32[4], token[]) infeed(begin)
  plain_loop = f32[4] while(x), condition=condition, body=plain_body
  random_loop = f32[4] while(x), condition=condition, body=random_body
  meeting_loop = f32[4] while(x), condition=condition, body=meeting_body
  ROOT all = (f32[4], f32[]) tuple(elementwise, reduction)
}
)";

TEST(PurityTest, WhatIsNotKnownToBePureIsImpure) {
  const std::unique_ptr<xla::HloModule> module = ParseModule(kPurityStep);
  const std::map<std::string, Purity> expected = {
      {"x", Purity::kPure},           {"elementwise", Purity::kPure},
      {"reduction", Purity::kPure},   {"from_state", Purity::kPure},
      {"plain_call", Purity::kPure},  {"all", Purity::kPure},
      {"random", Purity::kRandom},    {"acting_call", Purity::kImpure},
      {"number", Purity::kImpure},    {"met", Purity::kImpure},
      {"fed", Purity::kImpure},       {"begin", Purity::kImpure},
      {"meeting_loop", Purity::kPure}  // without its callees
  };
  for (const auto& [name, purity] : expected) {
    EXPECT_EQ(PurityOf(*Find(*module, name)), purity) << name;
  }
}

TEST(PurityTest, CalleesCount) {
  const std::unique_ptr<xla::HloModule> module = ParseModule(kPurityStep);
  const auto repeats = [](const xla::HloInstruction& instruction) {
    return PurityOf(instruction) == Purity::kPure;
  };
  const auto stays = [](const xla::HloInstruction& instruction) {
    return PurityOf(instruction) != Purity::kImpure;
  };
  EXPECT_TRUE(HoldsWithCallees(*Find(*module, "plain_loop"), repeats));
  EXPECT_TRUE(HoldsWithCallees(*Find(*module, "reduction"), repeats));
  EXPECT_FALSE(HoldsWithCallees(*Find(*module, "random_loop"), repeats));
  EXPECT_TRUE(HoldsWithCallees(*Find(*module, "random_loop"), stays));
  EXPECT_FALSE(HoldsWithCallees(*Find(*module, "meeting_loop"), stays));
}

}  // namespace
}  // namespace tf_tpu_ext
