// Tests programs of one core, and programs whose replicas run one by one. Compares their results
// with plain loops.
#include "cc/compiler/build/xla_build.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/base/tensor_testing.h"
#include "cc/compiler/build/program_testing.h"
#include "cc/program/compiled_program.h"
#include "xla/hlo/builder/xla_computation.h"
#include "xla/hlo/ir/hlo_input_output_alias_config.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/literal.h"
#include "xla/literal_util.h"
#include "xla/service/hlo.pb.h"

namespace tf_tpu_ext {
namespace {

using Pairs = std::vector<std::pair<int, int>>;

// Argument 0 is a variable and result 1 its new value.
constexpr char kStep[] = R"(
HloModule step
ENTRY entry {
  w = f32[6] parameter(0)
  x = f32[6] parameter(1)
  new = f32[6] subtract(w, x)
  loss = f32[6] multiply(x, x)
  ROOT all = (f32[6], f32[6]) tuple(loss, new)
})";

// The same with random numbers.
constexpr char kRandomStep[] = R"(
HloModule step
ENTRY entry {
  w = f32[64] parameter(0)
  state = u64[3] parameter(1)
  both = (u64[3], u32[64]) rng-bit-generator(state), algorithm=rng_philox
  bits = u32[64] get-tuple-element(both), index=1
  x = f32[64] convert(bits)
  new = f32[64] subtract(w, x)
  ROOT all = (f32[64], f32[64]) tuple(x, new)
})";

std::vector<xla::Literal> StepArguments() {
  std::vector<xla::Literal> arguments;
  arguments.push_back(Vector(Numbers(6, 1)));
  arguments.push_back(Vector(Numbers(6, 2)));
  return arguments;
}

void ExpectStep(const CompiledProgram& program) {
  const auto results = RunCode(*program.executable, StepArguments());
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 2u);
  const std::vector<float> w = Numbers(6, 1), x = Numbers(6, 2);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(ValuesOf((*results)[0])[i], x[i] * x[i]) << i;
    EXPECT_EQ(ValuesOf((*results)[1])[i], w[i] - x[i]) << i;
  }
}

// The results that the machine code may write over a parameter, with that parameter.
Pairs Aliases(const CompiledProgram& program) {
  Pairs aliases;
  program.executable->module().input_output_alias_config().ForEachAlias(
      [&](const xla::ShapeIndex& output, const xla::HloInputOutputAliasConfig::Alias& alias) {
        aliases.emplace_back(alias.parameter_number, output[0]);
      });
  return aliases;
}

TEST(BuildProgramTest, ComputesWhatTheModuleSays) {
  TestProgram step(kStep, /*replicas=*/1);
  step.record.name = "step";
  const auto program = step.Build();
  ASSERT_TRUE(program.ok()) << program.status();
  ExpectStep(**program);
  EXPECT_EQ((*program)->name, "step");
  EXPECT_EQ((*program)->id, 7);
  EXPECT_EQ((*program)->parameter_arguments.values(), (ToNumbers<ArgumentNumber>({0, 1})));
  EXPECT_EQ((*program)->outputs.size(), 2);
  EXPECT_TRUE((*program)->padded_arguments.empty());
  EXPECT_FALSE((*program)->waits);
  EXPECT_EQ((*program)->shared_update, nullptr);
  EXPECT_EQ((*program)->batched, nullptr);
  EXPECT_EQ(step.record.tensorflow_kernels, 0);
  EXPECT_EQ(step.record.batched_replicas, 1);
  EXPECT_FALSE(step.record.restored);
}

TEST(BuildProgramTest, OneCoreOverwritesItsVariables) {
  TestProgram step(kStep, /*replicas=*/1);
  step.lowered.updated_arguments = {{ArgumentNumber(0), OutputNumber(1)}};
  const auto program = step.Build();
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(
      (*program)->overwritten_variables,
      (std::vector<std::pair<ArgumentNumber, OutputNumber>>{{ArgumentNumber(0), OutputNumber(1)}}));
  EXPECT_EQ(Aliases(**program), Pairs({{0, 1}}));
  ExpectStep(**program);
}

TEST(BuildProgramTest, VariablesAreKeptWhereTheStepMayStillFail) {
  const auto overwritten = [](TestProgram& step) {
    step.lowered.updated_arguments = {{ArgumentNumber(0), OutputNumber(1)}};
    const auto program = step.Build();
    EXPECT_TRUE(program.ok()) << program.status();
    EXPECT_EQ((*program)->overwritten_variables.empty(), Aliases(**program).empty());
    return !(*program)->overwritten_variables.empty();
  };
  TestProgram plain(kStep, 1);
  EXPECT_TRUE(overwritten(plain));
  TestProgram with_dropout(kRandomStep, 1);
  EXPECT_TRUE(overwritten(with_dropout));
  TestProgram with_host_functions(kStep, 1);
  with_host_functions.lowered.host_functions.push_back({"f", "", ""});
  EXPECT_FALSE(overwritten(with_host_functions));
  TestProgram waiting(kStep, 1);
  waiting.lowered.has_host_transfers = true;
  EXPECT_FALSE(overwritten(waiting));
  TestProgram switched_off(kStep, 1);
  switched_off.lowered.options.share_updates = false;
  EXPECT_FALSE(overwritten(switched_off));
  TestProgram of_two_cores(kStep, 1);
  of_two_cores.metadata.set_num_cores_per_replica(2);
  of_two_cores.metadata.set_use_spmd_for_xla_partitioning(true);
  EXPECT_FALSE(overwritten(of_two_cores));
}

TEST(BuildProgramTest, ConstantOutputsAreNotComputed) {
  TestProgram step(kStep, /*replicas=*/1);
  tensorflow::XlaOutputDescription constant;
  constant.type = tensorflow::DT_INT32;
  constant.is_constant = true;
  constant.constant_value = MakeScalar<int32_t>(42);
  auto& outputs = step.lowered.result.outputs;
  outputs.insert(outputs.begin(), constant);
  step.lowered.updated_arguments = {{ArgumentNumber(0), OutputNumber(2)}};
  const auto program = step.Build();
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_EQ((*program)->outputs.size(), 3);
  EXPECT_EQ((*program)->outputs[OutputNumber(0)].constant->scalar<int32_t>()(), 42);
  // Variables refer to outputs, aliases to results.
  EXPECT_EQ(
      (*program)->overwritten_variables,
      (std::vector<std::pair<ArgumentNumber, OutputNumber>>{{ArgumentNumber(0), OutputNumber(2)}}));
  EXPECT_EQ(Aliases(**program), Pairs({{0, 1}}));
  ExpectStep(**program);
}

TEST(BuildProgramTest, ResultsOfDynamicSizeComePaddedWithTheirSizes) {
  TestProgram step(R"(
HloModule step
ENTRY entry {
  x = f32[4,2] parameter(0)
  n = s32[] parameter(1)
  some = f32[<=4,2] set-dimension-size(x, n), dimensions={0}
  doubled = f32[<=4,2] add(some, some)
  ROOT all = (s32[], f32[<=4,2]) tuple(n, doubled)
})",
                   /*replicas=*/1);
  const auto program = step.Build();
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE((*program)->outputs[OutputNumber(0)].dynamic_sizes.empty());
  EXPECT_EQ((*program)->outputs[OutputNumber(1)].dynamic_sizes,
            (std::vector<std::pair<int, ResultNumber>>{{0, ResultNumber(2)}}));
  ASSERT_EQ((*program)->padded_arguments.size(), 1u);
  EXPECT_EQ((*program)->padded_arguments[0].argument, ArgumentNumber(0));
  std::vector<xla::Literal> arguments;
  arguments.push_back(Matrix(Numbers(8, 3), 4));
  arguments.push_back(xla::LiteralUtil::CreateR0<int32_t>(3));
  const auto results = RunCode(*(*program)->executable, arguments);
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 3u);
  EXPECT_EQ((*results)[2].Get<int32_t>({}), 3);
  EXPECT_EQ((*results)[1].shape().dimensions(0), 4);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(ValuesOf((*results)[1])[i], 2 * Numbers(8, 3)[i]) << i;
}

constexpr char kMeeting[] = R"(
HloModule step
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY entry {
  x = f32[4] parameter(0)
  unused = f32[4] all-reduce(x), replica_groups={}, to_apply=sum
  y = f32[4] negate(x)
  used = f32[4] all-reduce(y), replica_groups={}, to_apply=sum
  z = f32[4] sine(used)
  ROOT all = (f32[4]) tuple(z)
})";

int64_t NumAllReduces(const CompiledProgram& program) {
  int64_t count = 0;
  for (const auto* computation : program.executable->module().computations()) {
    count += CountOps(*computation, xla::HloOpcode::kAllReduce);
  }
  return count;
}

TEST(BuildProgramTest, ReplicasWithOtherProgramsMeetInEveryCollective) {
  TestProgram step(kMeeting, /*replicas=*/2);
  step.lowered.for_one_replica = true;
  const auto program = step.Build();
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(NumAllReduces(**program), 2);
  EXPECT_TRUE((*program)->waits);
  EXPECT_EQ((*program)->cores.values(), (ToNumbers<Core>({0, 1})));
}

TEST(BuildProgramTest, ReplicasOfOneProgramMeetWhereTheyUseTheResult) {
  TestProgram step(kMeeting, /*replicas=*/2);
  step.lowered.options.share_updates = false;
  const auto program = step.Build();
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(NumAllReduces(**program), 1);
  EXPECT_TRUE((*program)->waits);
}

TEST(BuildProgramTest, NotesWhetherAllCodeCameFromTheCache) {
  TestProgram step(kStep, /*replicas=*/1);
  const TestCache cache;
  ASSERT_TRUE(step.Build().ok());
  EXPECT_FALSE(step.record.restored);
  const auto program = step.Build();
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(step.record.restored);
  ExpectStep(**program);
}

TEST(BuildProgramTest, AModuleThatIsNoneIsAnError) {
  TestProgram step(kStep, /*replicas=*/1);
  step.lowered.result.computation = std::make_shared<xla::XlaComputation>(xla::HloModuleProto());
  EXPECT_FALSE(step.Build().ok());
}

TEST(BuildProgramTest, AModuleThatCallsItselfIsAnError) {
  TestProgram step(R"(
HloModule step
inner {
  x = f32[4] parameter(0)
  ROOT y = f32[4] negate(x)
}
ENTRY entry {
  x = f32[4] parameter(0)
  y = f32[4] call(x), to_apply=inner
  ROOT all = (f32[4]) tuple(y)
})",
                   /*replicas=*/1);
  EXPECT_TRUE(step.Build().ok());
  xla::HloModuleProto proto = step.lowered.result.computation->proto();
  for (auto& computation : *proto.mutable_computations()) {
    for (auto& instruction : *computation.mutable_instructions()) {
      for (int64_t& called : *instruction.mutable_called_computation_ids()) {
        called = computation.id();
      }
    }
  }
  step.lowered.result.computation = std::make_shared<xla::XlaComputation>(std::move(proto));
  EXPECT_FALSE(step.Build().ok());
}

TEST(BuildProgramTest, AnInstructionWithoutItsOperandIsAnError) {
  TestProgram step(kStep, /*replicas=*/1);
  xla::HloModuleProto proto = step.lowered.result.computation->proto();
  for (auto& instruction : *proto.mutable_computations(0)->mutable_instructions()) {
    if (instruction.opcode() == "subtract") instruction.set_operand_ids(0, 12345);
  }
  step.lowered.result.computation = std::make_shared<xla::XlaComputation>(std::move(proto));
  EXPECT_FALSE(step.Build().ok());
}

TEST(BuildProgramTest, AnImpossiblePlaceIsAnError) {
  TestProgram step(kStep, /*replicas=*/1);
  step.metadata.set_num_cores_per_replica(2);
  for (auto& argument : *step.metadata.mutable_args()) {
    argument.mutable_sharding()->set_type(xla::OpSharding::MAXIMAL);
    argument.mutable_sharding()->add_tile_assignment_devices(3);
  }
  EXPECT_EQ(step.Build().status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tf_tpu_ext
