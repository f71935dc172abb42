#include "cc/compiler/hlo/cut_chains.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "cc/compiler/hlo/module.h"
#include "cc/compiler/hlo/test_module.h"
#include "cc/program/chain_cut.h"
#include "gtest/gtest.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloModule;
using xla::HloOpcode;

// The text of `length` ops. Each multiplies the one before it, or at first `first`, by `first`.
// Their names are the prefix and a number, starting at 1.
std::string Chain(const std::string& first, const std::string& prefix, int length) {
  std::string text;
  for (int i = 1; i <= length; ++i) {
    absl::StrAppend(&text, "  ", prefix, i, " = f32[3,3] multiply(",
                    i == 1 ? first : absl::StrCat(prefix, i - 1), ", ", first, ")\n");
  }
  return text;
}

std::string Entry(const std::string& body, const std::string& root) {
  return absl::StrCat("HloModule chains\n\nENTRY entry {\n  x = f32[3,3] parameter(0)\n", body,
                      "  ROOT result = f32[3,3] copy(", root, ")\n}\n");
}

bool IsCut(const HloInstruction* instruction) { return instruction->IsCustomCall(kChainCutTarget); }

int NumCuts(const HloComputation& computation) {
  int cuts = 0;
  for (const HloInstruction* instruction : computation.instructions()) cuts += IsCut(instruction);
  return cuts;
}

// The length of the longest chain without a cut.
int LongestChain(const HloComputation& computation) {
  std::map<const HloInstruction*, int> lengths;
  int longest = 0;
  for (const HloInstruction* instruction : computation.MakeInstructionPostOrder()) {
    int length = 1;
    for (const HloInstruction* operand : instruction->operands()) {
      length = std::max(length, lengths.at(operand) + 1);
    }
    const bool ends = IsCut(instruction) || instruction->opcode() == HloOpcode::kParameter ||
                      instruction->opcode() == HloOpcode::kDot;
    lengths[instruction] = ends ? 0 : length;
    longest = std::max(longest, lengths[instruction]);
  }
  return longest;
}

std::unique_ptr<HloModule> Cut(int max_length, const std::string& text) {
  std::unique_ptr<HloModule> module = ParseModule(text);
  EXPECT_TRUE(CutChains(max_length, module.get()).ok());
  ExpectValid(module.get());
  return module;
}

TEST(CutChainsTest, CutsChainsThatAreLonger) {
  const auto module = Cut(10, Entry(Chain("x", "op", 34), "op34"));
  const HloComputation* entry = module->entry_computation();
  EXPECT_EQ(NumCuts(*entry), 3);
  EXPECT_EQ(LongestChain(*entry), 10);
  EXPECT_EQ(entry->instruction_count(), 1 + 35 + 3);
  EXPECT_EQ(entry->root_instruction()->name(), "result");
}

TEST(CutChainsTest, LeavesOthersAsTheyAre) {
  const std::string dot =
      " = f32[3,3] dot(x, x), lhs_contracting_dims={1}, "
      "rhs_contracting_dims={0}\n";
  const auto module =
      Cut(10, Entry(Chain("x", "op", 10) + "  first" + dot + Chain("first", "d", 9), "d9"));
  EXPECT_EQ(NumCuts(*module->entry_computation()), 0);
}

TEST(CutChainsTest, AValueOfSeveralUsersIsCutOnce) {
  const auto module =
      Cut(5, Entry(Chain("x", "op", 4) +
                       "  value = f32[3,3] add(op4, x), metadata={op_name=\"value\"}\n"
                       "  square = f32[3,3] multiply(value, value)\n"
                       "  other = f32[3,3] subtract(value, x)\n"
                       "  both = f32[3,3] add(square, other)\n",
                   "both"));
  const HloComputation* entry = module->entry_computation();
  ASSERT_EQ(NumCuts(*entry), 1);
  const HloInstruction* value = Find(*module, "value");
  ASSERT_EQ(value->user_count(), 1);
  const HloInstruction* cut = value->users()[0];
  ASSERT_TRUE(IsCut(cut));
  EXPECT_EQ(cut->metadata().op_name(), "value");
  ASSERT_EQ(cut->output_operand_aliasing().size(), 1u);
  EXPECT_EQ(cut->output_operand_aliasing()[0].second.first, 0);
  EXPECT_EQ(Find(*module, "square")->operand(0), cut);
  EXPECT_EQ(Find(*module, "square")->operand(1), cut);
  EXPECT_EQ(Find(*module, "other")->operand(0), cut);
  EXPECT_EQ(Find(*module, "other")->operand(1), Find(*module, "x"));
}

TEST(CutChainsTest, CutsInLoopsButNotInReducers) {
  std::string reducer = "reducer {\n  a = f32[] parameter(0)\n  r0 = f32[] parameter(1)\n";
  for (int i = 1; i <= 7; ++i) {
    absl::StrAppend(&reducer, "  r", i, " = f32[] add(r", i - 1, ", a)\n");
  }
  absl::StrAppend(&reducer, "  ROOT r = f32[] add(r7, a)\n}\n\n");
  const std::string text = absl::StrCat(
      "HloModule loops\n\n", reducer, "body {\n  x = f32[3,3] parameter(0)\n", Chain("x", "op", 7),
      "  ROOT next = f32[3,3] copy(op7)\n}\n\ncondition {\n  x = f32[3,3] parameter(0)\n"
      "  ROOT never = pred[] constant(false)\n}\n\nENTRY entry {\n  x = f32[3,3] parameter(0)\n"
      "  zero = f32[] constant(0)\n"
      "  loop = f32[3,3] while(x), condition=condition, body=body\n"
      "  ROOT all = f32[3] reduce(loop, zero), dimensions={1}, to_apply=reducer\n}\n");
  const auto module = Cut(5, text);
  EXPECT_EQ(NumCuts(*module->GetComputationWithName("body")), 1);
  EXPECT_EQ(NumCuts(*module->GetComputationWithName("reducer")), 0);
  EXPECT_EQ(NumCuts(*module->entry_computation()), 0);
}

TEST(CutChainsTest, ModulesWithDynamicSizesStayAsTheyAre) {
  const auto module = Cut(5, Entry("  size = s32[] constant(2)\n"
                                   "  dynamic = f32[<=3,3] set-dimension-size(x, size), "
                                   "dimensions={0}\n" +
                                       Chain("x", "op", 7),
                                   "op7"));
  EXPECT_EQ(NumCuts(*module->entry_computation()), 0);
}

TEST(CutChainsTest, LongChainsNeedNoStack) {
  const auto module = Cut(200, Entry(Chain("x", "op", 200'000), "op200000"));
  EXPECT_EQ(NumCuts(*module->entry_computation()), 1000);
  EXPECT_EQ(LongestChain(*module->entry_computation()), 200);
  // Neither does the conversion for the compiler.
  auto compiled = ToModule(ToComputation(*module));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(NumCuts(*(*compiled)->entry_computation()), 1000);
}

}  // namespace
}  // namespace tf_tpu_ext
