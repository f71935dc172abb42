#include "cc/compiler/replicas/split_update.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "cc/compiler/hlo/test_module.h"
#include "cc/compiler/replicas/update_parts.h"
#include "gtest/gtest.h"
#include "xla/hlo/evaluator/hlo_evaluator.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/literal.h"
#include "xla/literal_util.h"

namespace tf_tpu_ext {
namespace {

using xla::HloOpcode;
using xla::Literal;
using xla::LiteralUtil;

constexpr int kFourReplicas = 4;

constexpr char kCalledByUpdates[] = R"(
HloModule step

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

larger {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b)
}

difference {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] subtract(a, b)
}

before {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT
}

noisy {
  x = f32[4] parameter(0)
  low = f32[] constant(0)
  high = f32[] constant(1)
  noise = f32[4] rng(low, high), distribution=rng_uniform
  ROOT r = f32[4] add(x, noise)
}

ENTRY entry {
  weights = f32[4] parameter(0)
  data = f32[4] parameter(1)
  more = f32[4] parameter(2)
  momentum = f32[4] parameter(3)
)";

// A program over vectors of four numbers with these results. Parameters 0 and 3 are mirrored.
std::unique_ptr<xla::HloModule> Step(const std::string& body, const std::string& results) {
  const int count = 1 + absl::c_count(results, ',');
  std::string types = "f32[4]";
  for (int i = 1; i < count; ++i) types += ", f32[4]";
  return ParseModule(absl::StrCat(kCalledByUpdates, body, "\n  ROOT all = (", types, ") tuple(",
                                  results, ")\n}\n"));
}

std::optional<SplitProgram> Split(const std::string& body, const std::string& results,
                                  int replicas = kFourReplicas) {
  const std::unique_ptr<xla::HloModule> module = Step(body, results);
  const std::string before = module->ToString();
  auto split = SplitUpdate(*module, replicas, {0, 3});
  EXPECT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(module->ToString(), before);
  if (split->has_value()) {
    ExpectValid((*split)->replica.get());
    ExpectValid((*split)->update.get());
  }
  return *std::move(split);
}

int Count(const std::unique_ptr<xla::HloModule>& module, HloOpcode opcode) {
  return CountOps(*module->entry_computation(), opcode);
}

int Results(const std::unique_ptr<xla::HloModule>& module) {
  return module->result_shape().tuple_shapes().size();
}

TEST(SplitUpdateTest, WhatFollowsTheSumIsTheUpdate) {
  auto split = Split(R"(
  own = f32[4] multiply(weights, data)
  gradient = f32[4] all-reduce(own), to_apply=sum
  next = f32[4] subtract(weights, gradient))",
                     "own, next, more");
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->replica_results, (std::vector<int>{0, 2}));
  EXPECT_EQ(split->update_results, (std::vector<int>{1}));
  EXPECT_EQ(split->update_parameters, (std::vector<int>{0}));
  ASSERT_EQ(split->combinations.size(), 1u);
  EXPECT_EQ(split->combinations[0].kind, Combination::kSum);
  EXPECT_EQ(split->combinations[0].type, xla::F32);
  EXPECT_EQ(Count(split->replica, HloOpcode::kAllReduce), 0);
  EXPECT_EQ(Count(split->replica, HloOpcode::kSubtract), 0);
  EXPECT_EQ(Results(split->replica), 3);
  EXPECT_EQ(Count(split->update, HloOpcode::kAllReduce), 0);
  EXPECT_EQ(Count(split->update, HloOpcode::kMultiply), 0);
  EXPECT_EQ(Results(split->update), 1);
}

Literal Numbers(float first) {
  return LiteralUtil::CreateR1<float>({first, first + 1, first * 2, -first});
}

std::vector<Literal> Evaluate(const xla::HloModule& module, const std::vector<Literal>& arguments) {
  std::vector<const Literal*> pointers;
  for (const Literal& argument : arguments) pointers.push_back(&argument);
  auto result = xla::HloEvaluator().Evaluate(*module.entry_computation(), pointers);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? result->DecomposeTuple() : std::vector<Literal>();
}

// Runs the replicas' parts, combines their values, and runs the update, in XLA's interpreter.
TEST(SplitUpdateTest, BothPartsTogetherComputeTheWhole) {
  auto split = Split(R"(
  own = f32[4] multiply(weights, data)
  gradient = f32[4] all-reduce(own), to_apply=sum
  largest = f32[4] all-reduce(more), to_apply=larger
  next = f32[4] subtract(weights, gradient)
  scaled = f32[4] multiply(momentum, largest)
  next_momentum = f32[4] add(scaled, largest))",
                     "next, own, next_momentum");
  ASSERT_TRUE(split.has_value());
  ASSERT_EQ(split->combinations.size(), 2u);
  const bool sum_first = split->combinations[0].kind == Combination::kSum;
  EXPECT_TRUE(split->combinations[sum_first ? 0 : 1].by_update);
  std::vector<std::vector<Literal>> replicas;
  for (int j = 0; j < kFourReplicas; ++j) {
    std::vector<Literal> arguments;
    arguments.push_back(Numbers(1));
    arguments.push_back(Numbers(2 + j));
    arguments.push_back(Numbers(j == 2 ? 9 : -j));
    arguments.push_back(Numbers(3));
    replicas.push_back(Evaluate(*split->replica, arguments));
    ASSERT_EQ(replicas[j].size(), 3u);
  }
  std::vector<Literal> arguments;
  for (int i = 0; i < 4; ++i) arguments.push_back(Numbers(i == 3 ? 3 : 1));
  for (int k = 0; k < 2; ++k) {
    if (split->combinations[k].by_update) {
      for (const auto& replica : replicas) arguments.push_back(replica[1 + k].Clone());
      continue;
    }
    Literal largest = replicas[0][1 + k].Clone();
    for (const auto& replica : replicas) {
      for (int i = 0; i < 4; ++i) {
        largest.data<float>()[i] =
            std::max(largest.data<float>()[i], replica[1 + k].data<float>()[i]);
      }
    }
    arguments.push_back(std::move(largest));
  }
  const std::vector<Literal> update = Evaluate(*split->update, arguments);
  ASSERT_EQ(split->update_results, (std::vector<int>{0, 2}));
  // weights - weights * (sum of data), and (momentum + 1) * (maximum of more).
  const float weights[] = {1, 2, 2, -1}, momentum[] = {3, 4, 6, -3};
  const float data[] = {2 + 3 + 4 + 5, 3 + 4 + 5 + 6, 4 + 6 + 8 + 10, -14}, more[] = {9, 10, 18, 3};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(update[0].data<float>()[i], weights[i] - weights[i] * data[i]) << i;
    EXPECT_EQ(update[1].data<float>()[i], momentum[i] * more[i] + more[i]) << i;
  }
}

TEST(SplitUpdateTest, TheUpdateAddsUpWhatItReadsOnce) {
  auto split = Split(R"(
  read_once = f32[4] all-reduce(data), to_apply=sum
  read_twice = f32[4] all-reduce(more), to_apply=sum
  next = f32[4] subtract(weights, read_once)
  scaled = f32[4] multiply(momentum, read_twice)
  next_momentum = f32[4] add(scaled, read_twice))",
                     "next, next_momentum");
  ASSERT_TRUE(split.has_value());
  ASSERT_EQ(split->combinations.size(), 2u);
  EXPECT_TRUE(split->combinations[0].by_update);
  EXPECT_FALSE(split->combinations[1].by_update);
  EXPECT_EQ(split->num_combined_values, kFourReplicas + 1);
  EXPECT_EQ(Count(split->update, HloOpcode::kParameter), 4 + kFourReplicas + 1);
  EXPECT_EQ(split->update->entry_computation_layout().parameter_count(), 4 + kFourReplicas + 1);
  EXPECT_EQ(Count(split->update, HloOpcode::kAdd), kFourReplicas - 1 + 1);
  EXPECT_EQ(Results(split->replica), 2);
}

TEST(SplitUpdateTest, ASquareReadsItsSumTwice) {
  auto split = Split(R"(
  total = f32[4] all-reduce(data), to_apply=sum
  square = f32[4] multiply(total, total))",
                     "square");
  ASSERT_TRUE(split.has_value());
  EXPECT_FALSE(split->combinations[0].by_update);
}

TEST(SplitUpdateTest, SumsOfManyReplicasAreMadeBefore) {
  auto split = Split(R"(
  total = f32[4] all-reduce(data), to_apply=sum
  next = f32[4] subtract(weights, total))",
                     "next", kFourReplicas + 1);
  ASSERT_TRUE(split.has_value());
  EXPECT_FALSE(split->combinations[0].by_update);
  EXPECT_EQ(split->num_combined_values, 1);
}

TEST(SplitUpdateTest, ASumThatTheReplicaReadsStaysWithIt) {
  // The new mean depends on a value that the replica's part computes.
  auto split = Split(R"(
  mean = f32[4] all-reduce(data), to_apply=sum
  centred = f32[4] subtract(data, mean)
  own = f32[4] multiply(centred, weights)
  gradient = f32[4] all-reduce(own), to_apply=sum
  next = f32[4] subtract(weights, gradient)
  scaled = f32[4] multiply(mean, weights))",
                     "next, scaled");
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->replica_results, (std::vector<int>{1}));
  EXPECT_EQ(split->update_results, (std::vector<int>{0}));
  EXPECT_EQ(Count(split->replica, HloOpcode::kAllReduce), 1);
}

TEST(SplitUpdateTest, NothingIsSplitIfTheReplicaReadsEverySum) {
  EXPECT_FALSE(Split(R"(
  total = f32[4] all-reduce(data), to_apply=sum
  own = f32[4] multiply(data, total)
  other = f32[4] subtract(data, weights))",
                     "own, other")
                   .has_value());
}

TEST(SplitUpdateTest, TheUpdateRepeatsLightWorkOnly) {
  auto split = Split(R"(
  heavy = f32[4] sort(weights), dimensions={0}, to_apply=before
  own = f32[4] multiply(weights, data)
  gradient = f32[4] all-reduce(own), to_apply=sum
  own_too = f32[4] multiply(weights, more)
  other = f32[4] all-reduce(own_too), to_apply=sum
  by_heavy = f32[4] multiply(gradient, heavy)
  next = f32[4] subtract(weights, by_heavy)
  square = f32[4] multiply(weights, weights)
  scaled = f32[4] multiply(other, momentum)
  next_momentum = f32[4] subtract(square, scaled))",
                     "next, next_momentum");
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->update_results, (std::vector<int>{1}));
  EXPECT_EQ(Count(split->update, HloOpcode::kSort), 0);
  EXPECT_EQ(split->update_parameters, (std::vector<int>{0, 3}));
}

TEST(SplitUpdateTest, AValueOfOneReplicaKeepsItsUsersWithIt) {
  for (const char* own : {"  number = u32[] replica-id()\n  float = f32[] convert(number)\n"
                          "  own = f32[4] broadcast(float), dimensions={}\n",
                          "  own = f32[4] call(weights), to_apply=noisy\n",
                          "  own = f32[4] custom-call(weights), custom_call_target=\"kernel\"\n",
                          "  first = f32[4] negate(weights)\n"
                          "  own = f32[4] tanh(first), control-predecessors={weights}\n"}) {
    auto split = Split(absl::StrCat(own, R"(
  gradient = f32[4] all-reduce(data), to_apply=sum
  by_own = f32[4] multiply(gradient, own)
  next = f32[4] subtract(weights, by_own)
  other = f32[4] all-reduce(more), to_apply=sum
  next_momentum = f32[4] subtract(momentum, other))"),
                       "next, next_momentum");
    ASSERT_TRUE(split.has_value()) << own;
    EXPECT_EQ(split->update_results, (std::vector<int>{1})) << own;
    EXPECT_EQ(Count(split->replica, HloOpcode::kAllReduce), 1) << own;
  }
}

TEST(SplitUpdateTest, SumsOfSomeReplicasStay) {
  EXPECT_FALSE(Split("  total = f32[4] all-reduce(data), replica_groups={{0,1},{2,3}}, "
                     "to_apply=sum",
                     "total")
                   .has_value());
}

TEST(SplitUpdateTest, UnusualReductionsStay) {
  EXPECT_FALSE(
      Split("  total = f32[4] all-reduce(data), to_apply=difference", "total").has_value());
}

TEST(SplitUpdateTest, TakesTheFirstReplicasValue) {
  auto split = Split(R"(
  next = f32[4] add(weights, weights)
  row = f32[1,4] reshape(next)
  rows = f32[4,4] concatenate(row, row, row, row), dimensions={0}
  sent = f32[4,4] all-to-all(rows), dimensions={0}, replica_groups={{0,1,2,3}}
  first = f32[1,4] slice(sent), slice={[0:1], [0:4]}
  step = f32[4] reshape(first)
  gradient = f32[4] all-reduce(next), to_apply=sum
  next_momentum = f32[4] subtract(momentum, gradient))",
                     "step, next_momentum");
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->update_results, (std::vector<int>{0, 1}));
  ASSERT_EQ(split->combinations.size(), 2u);
  EXPECT_EQ(absl::c_count_if(split->combinations,
                             [](const Combination& c) { return c.kind == Combination::kFirst; }),
            1);
  EXPECT_EQ(Count(split->replica, HloOpcode::kAllToAll), 0);
}

TEST(SplitUpdateTest, OneReplicaHasNothingToShare) {
  EXPECT_FALSE(Split("  total = f32[4] all-reduce(weights), to_apply=sum", "total", 1).has_value());
}

TEST(UpdatePartsTest, WhatDependsOnMirroredParametersAloneIsFree) {
  const std::unique_ptr<xla::HloModule> module = Step(R"(
  decay = f32[4] multiply(weights, momentum)
  own = f32[4] multiply(decay, data)
  gradient = f32[4] all-reduce(own), to_apply=sum
  next = f32[4] subtract(decay, gradient))",
                                                      "next");
  const UpdateParts parts = FindUpdateParts(*module->entry_computation(), kFourReplicas, {0, 3});
  const auto part = [&](const char* name) { return parts.parts.at(Find(*module, name)); };
  EXPECT_EQ(part("decay"), Part::kFree);
  EXPECT_EQ(part("data"), Part::kReplica);
  EXPECT_EQ(part("own"), Part::kReplica);
  EXPECT_EQ(part("gradient"), Part::kCombine);
  EXPECT_EQ(part("next"), Part::kUpdate);
  EXPECT_EQ(parts.combined.at(Find(*module, "gradient")).value, Find(*module, "own"));
}

}  // namespace
}  // namespace tf_tpu_ext
