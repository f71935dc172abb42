// Tests training steps of several replicas: the shared update, and groups of replicas. What the
// parts compute together is compared with plain loops over the replicas.
#include "cc/compiler/build/program_source.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "cc/compiler/build/program_testing.h"
#include "cc/program/batched_replicas.h"
#include "cc/program/compiled_program.h"
#include "cc/program/shared_update.h"
#include "xla/literal.h"

namespace tf_tpu_ext {
namespace {

using Values = std::vector<float>;

constexpr int kRows = 4, kDepth = 32, kColumns = 32;

// Argument 0 is a variable and output 1 its new value. The gradient is the product of the replica's
// rows, transposed, with themselves. The loss is the product of its rows with the variable.
constexpr char kTraining[] = R"(
HloModule training
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY entry {
  w = f32[32,32] parameter(0)
  x = f32[4,32] parameter(1)
  loss = f32[4,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  gradient = f32[32,32] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  combined = f32[32,32] all-reduce(gradient), replica_groups={}, to_apply=sum
  new = f32[32,32] subtract(w, combined)
  ROOT all = (f32[4,32], f32[32,32]) tuple(loss, new)
})";

Values Variable() { return Numbers(kDepth * kColumns, 1); }
Values RowsOf(int replica) { return Numbers(kRows * kDepth, 2 + replica); }

Values LossOf(int replica) {
  const Values w = Variable(), x = RowsOf(replica);
  Values loss(kRows * kColumns, 0);
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      for (int k = 0; k < kDepth; ++k) {
        loss[i * kColumns + j] += x[i * kDepth + k] * w[k * kColumns + j];
      }
    }
  }
  return loss;
}

Values GradientOf(int replica) {
  const Values x = RowsOf(replica);
  Values gradient(kDepth * kDepth, 0);
  for (int i = 0; i < kDepth; ++i) {
    for (int j = 0; j < kDepth; ++j) {
      for (int row = 0; row < kRows; ++row) {
        gradient[i * kDepth + j] += x[row * kDepth + i] * x[row * kDepth + j];
      }
    }
  }
  return gradient;
}

Values NewVariable(int replicas) {
  Values value = Variable();
  for (int replica = 0; replica < replicas; ++replica) {
    const Values gradient = GradientOf(replica);
    for (size_t i = 0; i < value.size(); ++i) value[i] -= gradient[i];
  }
  return value;
}

std::vector<Values> ResultsOf(const CompiledProgram& program,
                              const std::vector<xla::Literal>& arguments) {
  const auto results = RunCode(*program.executable, arguments);
  EXPECT_TRUE(results.ok()) << results.status();
  std::vector<Values> values;
  if (results.ok()) {
    for (const xla::Literal& result : *results) values.push_back(ValuesOf(result));
  }
  return values;
}

std::vector<xla::Literal> ArgumentsOf(int replica) {
  std::vector<xla::Literal> arguments;
  arguments.push_back(Matrix(Variable(), kDepth));
  arguments.push_back(Matrix(RowsOf(replica), kRows));
  return arguments;
}

struct TrainingStep : TestProgram {
  explicit TrainingStep(int replicas) : TestProgram(kTraining, replicas) {
    lowered.updated_arguments = {{ArgumentNumber(0), OutputNumber(1)}};
  }
};

// Runs the parts of a step as the runtime does, and checks the losses and the new variable of all
// replicas.
void ExpectTrains(const CompiledProgram& program) {
  ASSERT_NE(program.shared_update, nullptr);
  const SharedUpdate& update = *program.shared_update;
  EXPECT_EQ(update.replica_outputs.values(), ToNumbers<OutputNumber>({0}));
  EXPECT_EQ(update.update_outputs.values(), ToNumbers<OutputNumber>({1}));
  ASSERT_EQ(update.combinations.size(), 1u);
  EXPECT_EQ(update.combinations[0].kind, Combination::kSum);
  EXPECT_EQ(
      update.updated_variables,
      (std::vector<std::pair<ArgumentNumber, OutputNumber>>{{ArgumentNumber(0), OutputNumber(0)}}));
  EXPECT_EQ(program.num_combined_outputs, 1);
  EXPECT_FALSE(program.waits);
  std::vector<Values> gradients;
  for (int replica = 0; replica < program.num_replicas; ++replica) {
    const std::vector<Values> results = ResultsOf(program, ArgumentsOf(replica));
    ASSERT_EQ(results.size(), 2u);
    EXPECT_EQ(results[0], LossOf(replica)) << replica;
    gradients.push_back(results[1]);
  }
  // The update's parameters are those of the step, followed by the gradients.
  std::vector<xla::Literal> arguments = ArgumentsOf(0);
  if (update.combinations[0].by_update) {
    for (const Values& gradient : gradients) arguments.push_back(Matrix(gradient, kDepth));
  } else {
    Values sum(gradients[0].size(), 0);
    for (const Values& gradient : gradients) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
    }
    arguments.push_back(Matrix(sum, kDepth));
  }
  EXPECT_EQ(update.program->parameter_arguments.size(), arguments.size());
  const std::vector<Values> results = ResultsOf(*update.program, arguments);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0], NewVariable(program.num_replicas));
}

TEST(BuildSourceTest, TheUpdateOfTwoReplicasAddsUpItself) {
  TrainingStep step(/*replicas=*/2);
  const auto program = step.Build();
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_NE((*program)->shared_update, nullptr);
  EXPECT_TRUE((*program)->shared_update->combinations[0].by_update);
  EXPECT_EQ((*program)->shared_update->read_arguments, ToNumbers<ArgumentNumber>({0}));
  ExpectTrains(**program);
}

TEST(BuildSourceTest, TheGradientsOfManyReplicasAreAddedUpBefore) {
  TrainingStep step(/*replicas=*/6);
  step.lowered.options.stack_replicas = false;
  const auto program = step.Build();
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_NE((*program)->shared_update, nullptr);
  EXPECT_FALSE((*program)->shared_update->combinations[0].by_update);
  ExpectTrains(**program);
}

TEST(BuildSourceTest, WithoutSharedUpdatesEveryReplicaRunsTheStep) {
  TrainingStep step(/*replicas=*/2);
  step.lowered.options.share_updates = false;
  const auto program = step.Build();
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ((*program)->shared_update, nullptr);
  EXPECT_EQ((*program)->outputs.size(), 2u);
  EXPECT_TRUE((*program)->waits);
}

TEST(BuildSourceTest, BothPartsAreRestored) {
  TrainingStep step(/*replicas=*/2);
  const TestCache cache;
  ASSERT_TRUE(step.Build().ok());
  EXPECT_FALSE(step.record.restored);
  EXPECT_EQ(cache.Files().size(), 2u);
  const auto program = step.Build();
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(step.record.restored);
  ExpectTrains(**program);
}

// On two processors, eight replicas form two groups.
constexpr int kReplicas = 8, kGroup = 4;

TEST(BuildBatchedTest, AGroupComputesWhatItsReplicasDo) {
  TrainingStep step(kReplicas);
  const auto program = step.Build();
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_NE((*program)->batched, nullptr);
  EXPECT_EQ((*program)->executable, nullptr);
  EXPECT_EQ(step.record.batched_replicas, kGroup);
  const BatchedReplicas& batched = *(*program)->batched;
  EXPECT_EQ(batched.group_size, kGroup);
  EXPECT_EQ(batched.batched_arguments.values(), (std::vector<bool>{false, true}));
  EXPECT_EQ(batched.batched_outputs.values(), (std::vector<bool>{true, false}));
  EXPECT_EQ(batched.mirrored_arguments, ToNumbers<ArgumentNumber>({0}));
  const CompiledProgram& groups = *batched.program;
  EXPECT_EQ(groups.num_replicas, kReplicas / kGroup);
  // A group runs on the core of its first replica.
  EXPECT_EQ(groups.cores.values(), ToNumbers<Core>({0, kGroup}));
  ASSERT_NE(groups.shared_update, nullptr);

  Values gradient(kDepth * kDepth, 0);
  for (int group = 0; group < groups.num_replicas; ++group) {
    Values rows, losses;
    for (int replica = group * kGroup; replica < (group + 1) * kGroup; ++replica) {
      const Values x = RowsOf(replica), loss = LossOf(replica);
      rows.insert(rows.end(), x.begin(), x.end());
      losses.insert(losses.end(), loss.begin(), loss.end());
    }
    std::vector<xla::Literal> arguments;
    arguments.push_back(Matrix(Variable(), kDepth));
    arguments.push_back(*Vector(rows).Reshape({kGroup, kRows, kDepth}));
    const std::vector<Values> results = ResultsOf(groups, arguments);
    ASSERT_EQ(results.size(), 2u);
    EXPECT_EQ(results[0], losses) << group;
    for (size_t i = 0; i < gradient.size(); ++i) gradient[i] += results[1][i];
  }
  for (size_t i = 0; i < gradient.size(); ++i) {
    EXPECT_EQ(Variable()[i] - gradient[i], NewVariable(kReplicas)[i]) << i;
  }
}

TEST(BuildBatchedTest, AReplicaCanStillBeBuiltAlone) {
  TrainingStep step(kReplicas);
  const auto program = step.Build();
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_NE((*program)->batched, nullptr);
  const auto alone = (*program)->batched->build_alone();
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ((*alone)->num_replicas, kReplicas);
  EXPECT_EQ((*alone)->batched, nullptr);
  ExpectTrains(**alone);
}

TEST(BuildBatchedTest, ReplicasThatMayDifferAreBuiltAlone) {
  const auto is_batched = [](TestProgram& step) {
    const auto program = step.Build();
    EXPECT_TRUE(program.ok()) << program.status();
    EXPECT_EQ((*program)->batched == nullptr, (*program)->executable != nullptr);
    EXPECT_EQ(step.record.batched_replicas > 1, (*program)->batched != nullptr);
    return (*program)->batched != nullptr;
  };
  TrainingStep batched(kReplicas);
  EXPECT_TRUE(is_batched(batched));
  TrainingStep switched_off(kReplicas);
  switched_off.lowered.options.stack_replicas = false;
  EXPECT_FALSE(is_batched(switched_off));
  TrainingStep with_own_programs(kReplicas);
  with_own_programs.lowered.for_one_replica = true;
  EXPECT_FALSE(is_batched(with_own_programs));
  TrainingStep with_host_functions(kReplicas);
  with_host_functions.lowered.host_functions.push_back({"f", "", ""});
  EXPECT_FALSE(is_batched(with_host_functions));
  TrainingStep with_a_processor_each(2);
  EXPECT_FALSE(is_batched(with_a_processor_each));
}

}  // namespace
}  // namespace tf_tpu_ext
