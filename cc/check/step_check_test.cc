#include "cc/check/step_check.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/core_context.h"
#include "cc/base/custom_call_tester.h"
#include "cc/base/tensor_testing.h"
#include "cc/check/findings.h"
#include "cc/program/probe_call.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

// A program of two replicas that updates argument 3 with the logarithm of argument 5.
std::shared_ptr<const CompiledProgram> Logarithm() {
  Probes probes;
  probes.probes.resize(3);
  probes.probes[0].parameter = ParameterNumber(0);
  probes.probes[0].instruction = "parameter f32[]";
  probes.probes[0].carries = true;
  probes.probes[1].parameter = ParameterNumber(1);
  probes.probes[1].carries = true;
  probes.probes[1].instruction = "parameter f32[]";
  probes.probes[2].op = "Log";
  probes.probes[2].source = "model.py:3";
  probes.probes[2].instruction = "log f32[]";
  probes.probes[2].operands = {1};
  probes.results = {{{2}, ParameterNumber(0)}};
  probes.mirrored = {{ParameterNumber(0), ResultNumber(0)}};
  auto program = std::make_shared<CompiledProgram>();
  program->name = "step";
  program->id = 7;
  program->num_replicas = 2;
  program->parameter_arguments = {ArgumentNumber(3), ArgumentNumber(5)};
  program->probes = std::make_shared<const Probes>(std::move(probes));
  return program;
}

ValueSummary Value(uint64_t hash, Worst worst = Worst::kFinite) { return {hash, worst}; }

class StepCheckTest : public ::testing::Test {
 protected:
  // What a step finds if its replicas have shown these values.
  std::vector<Finding> Run(const std::vector<std::vector<ValueSummary>>& shown,
                           std::set<ArgumentNumber> variables = {ArgumentNumber(3)}) {
    StepCheck check(Logarithm(), std::move(variables), &findings_);
    for (size_t slot = 0; slot < shown.size(); ++slot) {
      for (size_t probe = 0; probe < shown[slot].size(); ++probe) {
        check.Show(Slot(static_cast<int>(slot)), static_cast<int>(probe), shown[slot][probe]);
      }
    }
    check.End();
    return findings_.Get();
  }

  Findings findings_;
};

TEST_F(StepCheckTest, NothingIsFoundInASoundStep) {
  EXPECT_TRUE(Run({{Value(1), Value(2), Value(3)}, {Value(1), Value(2), Value(3)}}).empty());
  EXPECT_EQ(findings_.steps(), 1);
}

TEST_F(StepCheckTest, TellsReplicaStepAndVariable) {
  Run({{Value(1), Value(2), Value(3)}, {Value(1), Value(2), Value(3)}});
  const std::vector<Finding> found =
      Run({{Value(1), Value(2), Value(3)}, {Value(1), Value(2), Value(3, Worst::kNan)}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, kNanFinding);
  EXPECT_EQ(found[0].op, "Log");
  EXPECT_EQ(found[0].source, "model.py:3");
  EXPECT_EQ(found[0].replica, 1);
  EXPECT_EQ(found[0].step, 2);
  EXPECT_EQ(found[0].variable, 3);
  EXPECT_EQ(found[0].argument, -1);
}

TEST_F(StepCheckTest, CountsWhatItHasFoundBefore) {
  const std::vector<std::vector<ValueSummary>> bad = {
      {Value(1), Value(2), Value(3, Worst::kInfinity)}};
  Run(bad);
  const std::vector<Finding> found = Run(bad);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, kInfinityFinding);
  EXPECT_EQ(found[0].step, 1);
  EXPECT_EQ(found[0].count, 2);
}

TEST_F(StepCheckTest, VariablesThatDiffer) {
  const std::vector<std::vector<ValueSummary>> shown = {{Value(1), Value(2), Value(3)},
                                                        {Value(1), Value(12), Value(13)}};
  // All replicas share a host variable.
  EXPECT_TRUE(Run(shown, {}).empty());
  const std::vector<Finding> found = Run(shown);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, kReplicasDifferFinding);
  EXPECT_EQ(found[0].variable, 3);
  EXPECT_EQ(found[0].argument, 5);
  EXPECT_EQ(found[0].op, "Log");
}

TEST_F(StepCheckTest, CoresOfAReplicaShowParts) {
  auto divided = std::make_shared<CompiledProgram>(*Logarithm());
  divided->num_cores_per_replica = 2;
  StepCheck check(divided, {ArgumentNumber(3)}, &findings_);
  // The second core gets the first core's non-finite value. The replicas have different parts of
  // argument 5.
  const Worst bad = Worst::kInfinity;
  const std::vector<std::vector<ValueSummary>> shown = {{Value(1), Value(2, bad), Value(3)},
                                                        {Value(4), Value(5), Value(6, bad)},
                                                        {Value(1), Value(2), Value(3)},
                                                        {Value(4), Value(15), Value(16)}};
  for (int slot = 0; slot < 4; ++slot) {
    for (int probe = 0; probe < 3; ++probe) check.Show(Slot(slot), probe, shown[slot][probe]);
  }
  check.End();
  const std::vector<Finding> found = findings_.Get();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].kind, kInfinityFinding);
  EXPECT_EQ(found[0].replica, 0);
  EXPECT_EQ(found[0].argument, 5);
  EXPECT_EQ(found[1].kind, kReplicasDifferFinding);
  EXPECT_EQ(found[1].op, "Log");
}

TEST_F(StepCheckTest, KeepsAnEndOfLongLoops) {
  StepCheck check(Logarithm(), {}, &findings_);
  for (size_t i = 0; i < 3 * StepCheck::kMostOfProbe; ++i) check.Show(Slot(0), 2, Value(i));
  check.Show(Slot(0), 2, Value(0, Worst::kNan));
  check.End();
  EXPECT_EQ(findings_.Get().size(), 1u);
}

TEST_F(StepCheckTest, DamagedNumbersAreLeftOut) {
  StepCheck check(Logarithm(), {}, &findings_);
  check.Show(Slot(9), 0, Value(0, Worst::kNan));
  check.Show(Slot(0), 99, Value(0, Worst::kNan));
  check.End();
  EXPECT_TRUE(findings_.Get().empty());
}

TEST_F(StepCheckTest, TheCustomCallShowsValues) {
  StepCheck check(Logarithm(), {}, &findings_);
  CoreContext core;
  core.slot = Slot(1);
  core.check = &check;
  ProbeCall probe;
  probe.probe = 2;
  auto call = CustomCallTester::Create(
      kProbeTarget, Encode(probe), {MakeVector<float>({1, std::numeric_limits<float>::infinity()})},
      {});
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ((*call)->Run(&core), absl::OkStatus());
  EXPECT_NE((*call)->Run(nullptr), absl::OkStatus());
  check.End();
  ASSERT_EQ(findings_.Get().size(), 1u);
  EXPECT_EQ(findings_.Get()[0].kind, kInfinityFinding);
  EXPECT_EQ(findings_.Get()[0].replica, 1);
}

TEST(FindingsTest, RacesOfOtherLinesAreOthers) {
  Findings findings;
  Finding finding;
  finding.kind = kRaceFinding;
  finding.op = "AssignVariableOp";
  for (const char* source : {"model.py:3", "model.py:9", "model.py:3"}) {
    finding.source = source;
    findings.Add(finding);
  }
  ASSERT_EQ(findings.Get().size(), 2u);
  EXPECT_EQ(findings.Get()[0].count, 2);
}

PossibleRace RaceOf(const std::string& cluster, const std::string& other) {
  PossibleRace race{cluster, other, {}};
  race.finding.kind = kRaceFinding;
  race.finding.op = cluster;
  race.finding.other_op = other;
  return race;
}

TEST(FindingsTest, APossibleRaceTakesTwoReplicas) {
  Findings findings;
  findings.AddPossible(RaceOf("a", "a"));
  findings.AddPossible(RaceOf("a", "b"));
  findings.AddPossible(RaceOf("a", "b"));
  findings.AddRacesOf({}, 1);
  findings.AddRacesOf({{"a", {Slot(1)}}}, 2);
  findings.AddRacesOf({{"a", {Slot(1)}}, {"b", {Slot(1)}}}, 3);
  EXPECT_TRUE(findings.Get().empty());
  findings.AddRacesOf({{"a", {Slot(1)}}, {"b", {Slot(1), Slot(2)}}}, 4);
  ASSERT_EQ(findings.Get().size(), 1u);
  EXPECT_EQ(findings.Get()[0].other_op, "b");
  EXPECT_EQ(findings.Get()[0].step, 4);
  findings.AddRacesOf({{"a", {Slot(1), Slot(2)}}, {"b", {Slot(1)}}}, 5);
  ASSERT_EQ(findings.Get().size(), 2u);
  EXPECT_EQ(findings.Get()[0].count, 2);
  EXPECT_EQ(findings.Get()[1].other_op, "a");
  EXPECT_EQ(findings.Get()[1].step, 5);
}

TEST(FindingsTest, HaveAnEnd) {
  Findings findings;
  for (size_t i = 0; i < 2 * Findings::kMost; ++i) {
    Finding finding;
    finding.kind = kRaceFinding;
    finding.op = std::to_string(i);
    findings.Add(std::move(finding));
  }
  EXPECT_EQ(findings.Get().size(), Findings::kMost);
  EXPECT_FALSE(findings.HasNonFinite());
}

}  // namespace
}  // namespace tf_tpu_ext
