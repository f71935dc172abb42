#include "cc/check/shown_values.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

Probe Op(std::vector<int> operands, int computation = 0) {
  Probe probe;
  probe.operands = std::move(operands);
  probe.computation = computation;
  return probe;
}

Probe Parameter(int number) {
  Probe probe;
  probe.parameter = ParameterNumber(number);
  probe.carries = true;
  return probe;
}

std::vector<ValueSummary> Values(const std::vector<Worst>& worst) {
  std::vector<ValueSummary> values;
  for (Worst each : worst) values.push_back({0, each});
  return values;
}

std::vector<ValueSummary> Hashed(const std::vector<uint64_t>& hashes) {
  std::vector<ValueSummary> values;
  for (uint64_t hash : hashes) values.push_back({hash, Worst::kFinite});
  return values;
}

constexpr Worst kGood = Worst::kFinite;
constexpr Worst kNan = Worst::kNan;
constexpr Worst kInfinity = Worst::kInfinity;

TEST(FindNonFiniteTest, FindsWhereItBegins) {
  Probes probes;
  probes.probes = {Parameter(0), Op({0}), Op({1}), Op({1, 2})};
  probes.results = {{{3}, std::nullopt}};
  const std::vector<NonFinite> found = FindNonFinite(
      probes, {Values({kGood}), Values({kInfinity}), Values({kInfinity}), Values({kNan})});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].probe, 1);
  EXPECT_EQ(found[0].worst, kInfinity);
  EXPECT_EQ(found[0].result, ResultNumber(0));
}

TEST(FindNonFiniteTest, WhatDoesNotLeaveIsFine) {
  Probes probes;
  probes.probes = {Parameter(0), Op({0}), Op({0, 1})};
  probes.results = {{{2}, std::nullopt}};
  const ShownValues masked = {Values({kGood}), Values({kNan}), Values({kGood})};
  EXPECT_TRUE(FindNonFinite(probes, masked).empty());
  probes.to_host = {1};
  const std::vector<NonFinite> found = FindNonFinite(probes, masked);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].probe, 1);
  EXPECT_EQ(found[0].result, std::nullopt);
}

TEST(FindNonFiniteTest, ComparesValuesOfOneIteration) {
  Probes probes;
  // A loop: 1 is what an iteration begins with, 2 is what it makes.
  probes.probes = {Parameter(0), Op({0, 2}, 1), Op({1}, 1)};
  probes.results = {{{0, 2}, std::nullopt}};
  const std::vector<NonFinite> found = FindNonFinite(
      probes, {Values({kGood}), Values({kGood, kGood, kNan}), Values({kGood, kNan, kNan})});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].probe, 2);
}

TEST(FindNonFiniteTest, AParameterMayBringIt) {
  Probes probes;
  probes.probes = {Parameter(0), Op({0})};
  probes.results = {{{1}, std::nullopt}};
  const std::vector<NonFinite> found = FindNonFinite(probes, {Values({kNan}), Values({kNan})});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].probe, 0);
}

class FindDifferencesTest : public ::testing::Test {
 protected:
  FindDifferencesTest() {
    // 0: the variable, 1: an input, 2 and 3: values made from the input, 4: the new value.
    probes_.probes = {Parameter(0), Parameter(1), Op({1}), Op({2}), Op({0, 3})};
    probes_.results = {{{4}, ParameterNumber(0)}};
    probes_.mirrored = {{ParameterNumber(0), ResultNumber(0)}};
  }

  std::vector<Difference> Find(const ShownValues& one, const ShownValues& other) const {
    return FindDifferences(probes_, {&one, &other});
  }

  Probes probes_;
};

TEST_F(FindDifferencesTest, FindsTheFirstOp) {
  const std::vector<Difference> found =
      Find({Hashed({1}), Hashed({2}), Hashed({3}), Hashed({4}), Hashed({5})},
           {Hashed({1}), Hashed({12}), Hashed({13}), Hashed({14}), Hashed({15})});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].first, 2);
  EXPECT_EQ(found[0].last, 4);
  EXPECT_EQ(found[0].parameter, ParameterNumber(1));
}

TEST_F(FindDifferencesTest, SumsOfReplicasAreAlike) {
  EXPECT_TRUE(Find({Hashed({1}), Hashed({2}), Hashed({3}), Hashed({4}), Hashed({5})},
                   {Hashed({1}), Hashed({12}), Hashed({13}), Hashed({4}), Hashed({5})})
                  .empty());
}

TEST_F(FindDifferencesTest, AnOpMayDifferByItself) {
  // A random number, or the number of the replica.
  const std::vector<Difference> found =
      Find({Hashed({1}), Hashed({2}), Hashed({3}), Hashed({4}), Hashed({5})},
           {Hashed({1}), Hashed({2}), Hashed({3}), Hashed({14}), Hashed({15})});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].first, 3);
  EXPECT_EQ(found[0].parameter, std::nullopt);
}

TEST_F(FindDifferencesTest, TellsWhatDifferedBefore) {
  const std::vector<Difference> found =
      Find({Hashed({1}), Hashed({2}), Hashed({3}), Hashed({4}), Hashed({5})},
           {Hashed({11}), Hashed({2}), Hashed({3}), Hashed({4}), Hashed({15})});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].first, 0);
}

TEST_F(FindDifferencesTest, IterationsAreComparedToo) {
  const std::vector<Difference> found =
      Find({Hashed({1}), Hashed({2}), Hashed({3, 4}), Hashed({4}), Hashed({5})},
           {Hashed({1}), Hashed({2}), Hashed({3, 14}), Hashed({14}), Hashed({15})});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].first, 2);
}

}  // namespace
}  // namespace tf_tpu_ext
