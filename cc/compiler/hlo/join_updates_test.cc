#include "cc/compiler/hlo/join_updates.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "cc/compiler/hlo/test_module.h"
#include "cc/program/pack.h"
#include "gtest/gtest.h"
#include "xla/hlo/evaluator/hlo_evaluator.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/literal.h"
#include "xla/literal_util.h"

namespace tf_tpu_ext {
namespace {

using xla::HloInstruction;
using xla::HloModule;
using xla::HloOpcode;
using xla::Literal;

int CountCalls(const HloModule& module, const char* target) {
  return absl::c_count_if(module.entry_computation()->MakeInstructionPostOrder(),
                          [&](const HloInstruction* each) {
                            // What nothing uses any more is still there.
                            return each->IsCustomCall(target) && each->user_count() > 0;
                          });
}

// Computes the module with packed arrays as the calls would.
std::vector<Literal> ResultsOf(const HloModule& module) {
  xla::HloEvaluator evaluator;
  evaluator.set_custom_call_handler(
      [](const HloInstruction* call,
         absl::Span<const Literal*> operands) -> absl::StatusOr<Literal> {
        std::vector<float> all;
        for (const Literal* operand : operands) {
          absl::c_copy(operand->data<float>(), std::back_inserter(all));
        }
        if (call->IsCustomCall(kPackTarget)) return xla::LiteralUtil::CreateR1<float>(all);
        std::vector<Literal> parts;
        auto next = all.begin();
        for (const xla::Shape& part : call->shape().tuple_shapes()) {
          const std::vector<float> values(next, next + part.dimensions(0));
          next += part.dimensions(0);
          parts.push_back(xla::LiteralUtil::CreateR1<float>(values));
        }
        return xla::LiteralUtil::MakeTupleOwned(std::move(parts));
      });
  std::vector<Literal> arguments;
  float next = 1;
  for (const HloInstruction* parameter : module.entry_computation()->parameter_instructions()) {
    Literal argument = Literal::CreateFromShape(parameter->shape());
    for (float& value : argument.data<float>()) value = next++ / 8;
    arguments.push_back(std::move(argument));
  }
  std::vector<const Literal*> pointers;
  for (const Literal& argument : arguments) pointers.push_back(&argument);
  auto results = evaluator.Evaluate(module, pointers);
  CHECK_OK(results.status());
  return results->DecomposeTuple();
}

// One step of momentum for variables of the given shapes: two results each.
struct Updates {
  std::vector<std::string> shapes;
  std::string rate = "0.25";
  // Further instructions, and results among them.
  std::string more;
  std::vector<std::string> more_results;

  std::string Text() const {
    std::vector<std::string> types, results;
    std::string body;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const std::string& shape = shapes[i];
      absl::StrAppend(&body, "  v", i, " = ", shape, " parameter(", 3 * i, ")\n");
      absl::StrAppend(&body, "  m", i, " = ", shape, " parameter(", 3 * i + 1, ")\n");
      absl::StrAppend(&body, "  g", i, " = ", shape, " parameter(", 3 * i + 2, ")\n");
      absl::StrAppend(&body, "  half", i, " = f32[] constant(0.5)\n");
      absl::StrAppend(&body, "  decay", i, " = ", shape, " broadcast(half", i,
                      "), dimensions={}\n");
      absl::StrAppend(&body, "  kept", i, " = ", shape, " multiply(m", i, ", decay", i, ")\n");
      absl::StrAppend(&body, "  new_m", i, " = ", shape, " add(kept", i, ", g", i, ")\n");
      absl::StrAppend(&body, "  rate", i, " = f32[] constant(", rate, ")\n");
      absl::StrAppend(&body, "  rates", i, " = ", shape, " broadcast(rate", i,
                      "), dimensions={}\n");
      absl::StrAppend(&body, "  step", i, " = ", shape, " multiply(new_m", i, ", rates", i, ")\n");
      absl::StrAppend(&body, "  new_v", i, " = ", shape, " subtract(v", i, ", step", i, ")\n");
      for (const char* name : {"new_v", "new_m"}) {
        types.push_back(shape);
        results.push_back(absl::StrCat(name, i));
      }
    }
    for (const std::string& result : more_results) {
      types.push_back(shapes.back());
      results.push_back(result);
    }
    return absl::StrCat("HloModule updates\n\nENTRY entry {\n", body, more, "  ROOT all = (",
                        absl::StrJoin(types, ", "), ") tuple(", absl::StrJoin(results, ", "),
                        ")\n}\n");
  }
};

// Joins the updates, and checks that the module still computes the same.
std::unique_ptr<HloModule> Joined(const std::string& text) {
  const std::vector<Literal> before = ResultsOf(*ParseModule(text));
  std::unique_ptr<HloModule> module = ParseModule(text);
  EXPECT_TRUE(JoinUpdates(module.get()).ok());
  ExpectValid(module.get());
  const std::vector<Literal> after = ResultsOf(*module);
  EXPECT_EQ(before.size(), after.size());
  for (size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
    EXPECT_EQ(before[i], after[i]) << "result " << i;
  }
  return module;
}

TEST(JoinUpdatesTest, UpdatesOfAllShapesAreOne) {
  const auto module =
      Joined(Updates{.shapes = {"f32[3]", "f32[2,5]", "f32[1]", "f32[2,1,4]"}}.Text());
  // Of the variables, the slots and the gradients.
  EXPECT_EQ(CountCalls(*module, kPackTarget), 3);
  EXPECT_EQ(CountCalls(*module, kUnpackTarget), 2);
  const HloInstruction* result = module->entry_computation()->root_instruction()->operand(2);
  EXPECT_EQ(result->opcode(), HloOpcode::kReshape);
  const HloInstruction* unpack = result->operand(0)->operand(0);
  ASSERT_TRUE(unpack->IsCustomCall(kUnpackTarget));
  EXPECT_EQ(unpack->operand(0)->shape().dimensions(0), 3 + 10 + 1 + 8);
}

TEST(JoinUpdatesTest, OtherCodeOrOtherScalarsAreOtherUpdates) {
  const std::vector<std::string> shapes(3, "f32[3]");
  EXPECT_EQ(CountCalls(*Joined(Updates{.shapes = shapes}.Text()), kPackTarget), 0);
  // Two groups of four each, which differ in a constant.
  std::string text = Updates{.shapes = std::vector<std::string>(8, "f32[3]")}.Text();
  for (int i = 0; i < 4; ++i) {
    const std::string constant = absl::StrCat("rate", i, " = f32[] constant(");
    text.replace(text.find(constant) + constant.size(), 4, "0.75");
  }
  const auto module = Joined(text);
  EXPECT_EQ(CountCalls(*module, kPackTarget), 6);
  EXPECT_EQ(CountCalls(*module, kUnpackTarget), 4);
}

TEST(JoinUpdatesTest, ScalarsThatTheProgramComputesAreShared) {
  // Each update computes the same rate of one parameter, by instructions of its own.
  Updates updates{.shapes = std::vector<std::string>(4, "f32[6]")};
  std::string text = updates.Text();
  for (int i = 0; i < 4; ++i) {
    const std::string constant = absl::StrCat("rate", i, " = f32[] constant(0.25)");
    text.replace(text.find(constant), constant.size(),
                 absl::StrCat("sum", i, " = f32[] add(base, base)\n  rate", i,
                              " = f32[] reshape(sum", i, ")"));
  }
  const std::string entry = "ENTRY entry {\n";
  text.insert(text.find(entry) + entry.size(), "  base = f32[] parameter(12)\n");
  EXPECT_EQ(CountCalls(*Joined(text), kUnpackTarget), 2);
}

TEST(JoinUpdatesTest, WhatOtherCodeUsesIsAnOperand) {
  // The new slot of the last variable is also used by a sine, which is not joined.
  Updates updates{.shapes = std::vector<std::string>(4, "f32[3]"),
                  .more = "  waves = f32[3] sine(new_m3)\n",
                  .more_results = {"waves"}};
  EXPECT_EQ(CountCalls(*Joined(updates.Text()), kPackTarget), 0);
  updates.shapes.push_back("f32[3]");
  const auto module = Joined(updates.Text());
  EXPECT_EQ(CountCalls(*module, kPackTarget), 3);
  const HloInstruction* root = module->entry_computation()->root_instruction();
  EXPECT_EQ(root->operand(7)->name(), "new_m3");
  EXPECT_EQ(root->operand(6)->name(), "new_v3");
}

TEST(JoinUpdatesTest, UpdatesThatFollowEachOtherStayInOrder) {
  // The second step's gradients come from a reduction of the first step's variables.
  std::string body;
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < 4; ++i) {
      const std::string before = step == 0 ? absl::StrCat("v", i) : absl::StrCat("new0_", i);
      if (step == 0) absl::StrAppend(&body, "  v", i, " = f32[3] parameter(", i, ")\n");
      absl::StrAppend(&body, "  sine", step, "_", i, " = f32[3] sine(", before, ")\n");
      absl::StrAppend(&body, "  new", step, "_", i, " = f32[3] add(", before, ", sine", step, "_",
                      i, ")\n");
    }
  }
  const auto module = Joined(absl::StrCat(
      "HloModule steps\n\nENTRY entry {\n", body,
      "  ROOT all = (f32[3], f32[3], f32[3], f32[3], f32[3]) tuple(new1_0, new1_1, new1_2, new1_3, "
      "new0_0)\n}\n"));
  EXPECT_EQ(CountCalls(*module, kUnpackTarget), 1);
}

TEST(JoinUpdatesTest, LargeArraysKeepTheirKernels) {
  const auto module = Joined(Updates{.shapes = std::vector<std::string>(4, "f32[16385]")}.Text());
  EXPECT_EQ(CountCalls(*module, kPackTarget), 0);
}

TEST(JoinUpdatesTest, LoopsHaveUpdates) {
  std::string body = "  arguments = (f32[3], f32[3], f32[3], f32[3]) parameter(0)\n";
  std::vector<std::string> results;
  for (int i = 0; i < 4; ++i) {
    absl::StrAppend(&body, "  old", i, " = f32[3] get-tuple-element(arguments), index=", i, "\n");
    absl::StrAppend(&body, "  new", i, " = f32[3] add(old", i, ", old", i, ")\n");
    results.push_back(absl::StrCat("new", i));
  }
  auto module = ParseModule(absl::StrCat(
      "HloModule loop\n\nbody {\n", body, "  ROOT all = (f32[3], f32[3], f32[3], f32[3]) tuple(",
      absl::StrJoin(results, ", "),
      ")\n}\n\ncondition {\n  arguments = (f32[3], f32[3], f32[3], f32[3]) parameter(0)\n"
      "  ROOT no = pred[] constant(false)\n}\n\nENTRY entry {\n"
      "  start = (f32[3], f32[3], f32[3], f32[3]) parameter(0)\n"
      "  ROOT end = (f32[3], f32[3], f32[3], f32[3]) while(start), condition=condition, "
      "body=body\n}\n"));
  ASSERT_TRUE(JoinUpdates(module.get()).ok());
  ExpectValid(module.get());
  const HloInstruction* loop = module->entry_computation()->root_instruction();
  EXPECT_EQ(CountOps(*loop->while_body(), HloOpcode::kCustomCall), 2);
}

TEST(JoinUpdatesTest, LongChainsAreNoUpdates) {
  std::string body;
  for (int i = 0; i < 4; ++i) {
    absl::StrAppend(&body, "  c", i, "_0 = f32[3] parameter(", i, ")\n");
    for (int k = 1; k < 5'000; ++k) {
      absl::StrAppend(&body, "  c", i, "_", k, " = f32[3] negate(c", i, "_", k - 1, ")\n");
    }
  }
  auto module = ParseModule(
      absl::StrCat("HloModule chains\n\nENTRY entry {\n", body,
                   "  ROOT all = (f32[3], f32[3], f32[3], f32[3]) tuple(c0_4999, c1_4999, c2_4999, "
                   "c3_4999)\n}\n"));
  ASSERT_TRUE(JoinUpdates(module.get()).ok());
  EXPECT_EQ(CountCalls(*module, kPackTarget), 0);
}

}  // namespace
}  // namespace tf_tpu_ext
