// Tests programs that XLA compiles here in the same way as cc/compiler/build compiles TensorFlow's.
#include "cc/runtime/program.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "cc/abi/xla/cpu_client.h"
#include "cc/base/compute_pool.h"
#include "cc/base/core_numbers.h"
#include "cc/base/kernel_threads.h"
#include "cc/base/tensor_testing.h"
#include "cc/program/batched_replicas.h"
#include "cc/program/compiled_program.h"
#include "cc/program/value_numbers.h"
#include "cc/runtime/collective_table.h"
#include "cc/runtime/collectives.h"
#include "cc/runtime/padding_stats.h"
#include "cc/runtime/ynn_threads.h"
#include "gtest/gtest.h"
#include "xla/backends/cpu/collectives/cpu_collectives.h"
#include "xla/hlo/builder/xla_computation.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/parser/hlo_parser.h"
#include "xla/pjrt/plugin/xla_cpu/xla_cpu_pjrt_client.h"
#include "xla/service/executable.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr ArgumentNumber kArgument0(0), kArgument2(2);
constexpr OutputNumber kOutput0(0), kOutput1(1);

std::shared_ptr<xla::Executable> Compile(absl::string_view hlo) {
  static auto* const client = new auto(xla::GetXlaPjrtCpuClient(xla::CpuClientOptions()));
  EXPECT_TRUE(client->ok()) << client->status();
  auto module = xla::ParseAndReturnUnverifiedModule(hlo);
  EXPECT_TRUE(module.ok()) << module.status();
  xla::CompileOptions options;
  options.compile_portable_executable = true;
  auto executable = CompileByClient(***client, xla::XlaComputation((*module)->ToProto()), options);
  EXPECT_TRUE(executable.ok()) << executable.status();
  return CpuExecutableOf(**executable);
}

CompiledProgram::Output OfType(tensorflow::DataType dtype) {
  CompiledProgram::Output output;
  output.dtype = dtype;
  return output;
}

// A program whose parameter i takes argument i.
CompiledProgram Describe(absl::string_view hlo, int num_parameters,
                         std::vector<CompiledProgram::Output> outputs) {
  CompiledProgram compiled;
  compiled.name = "train";
  compiled.executable = Compile(hlo);
  for (ArgumentNumber argument : NumbersBelow<ArgumentNumber>(num_parameters)) {
    compiled.parameter_arguments.Add(argument);
  }
  compiled.outputs = ByNumber<OutputNumber, CompiledProgram::Output>(std::move(outputs));
  return compiled;
}

class ProgramTest : public ::testing::Test {
 protected:
  ProgramTest() {
    services_.compute_pool = kPool;
    services_.ynn_threads = kYnnThreads;
    services_.kernel_threads = &kernel_threads_;
    services_.collectives = collectives_.get();
    services_.padding = &padding_;
  }

  std::shared_ptr<Program> Create(CompiledProgram compiled) {
    auto program =
        Program::Create(services_, std::make_shared<const CompiledProgram>(std::move(compiled)));
    EXPECT_TRUE(program.ok()) << program.status();
    return *std::move(program);
  }

  static absl::StatusOr<Outputs> Run(Program& program, Arguments arguments,
                                     RunOptions options = {}) {
    absl::StatusOr<Outputs> result;
    absl::Notification ended;
    program.Start(CoreContext(), std::move(arguments), std::move(options),
                  [&](absl::Status status, Outputs outputs) {
                    if (status.ok()) {
                      result = std::move(outputs);
                    } else {
                      result = std::move(status);
                    }
                    ended.Notify();
                  });
    ended.WaitForNotification();
    return result;
  }

  // Not destroyed, because their threads outlive the tests.
  inline static ComputePool* const kPool = new ComputePool;
  inline static YnnThreads* const kYnnThreads = new YnnThreads(kPool);
  KernelThreadPools kernel_threads_{kPool};
  CollectiveTable table_;
  std::unique_ptr<xla::cpu::CpuCollectives> collectives_ = MakeCollectives(&table_, kPool, nullptr);
  PaddingStats padding_;
  ProgramServices services_;
};

constexpr char kDifference[] = R"(
HloModule difference
ENTRY entry {
  x = f32[3] parameter(0)
  y = f32[3] parameter(1)
  difference = f32[3] subtract(x, y)
  ROOT all = (f32[3]) tuple(difference)
}
)";

TEST_F(ProgramTest, ParametersTakeTheirArguments) {
  CompiledProgram compiled = Describe(kDifference, 0, {OfType(tensorflow::DT_FLOAT)});
  compiled.parameter_arguments = {kArgument2, kArgument0};
  const auto program = Create(std::move(compiled));
  for (const bool on_one_thread : {true, false}) {
    RunOptions options;
    options.on_one_thread = on_one_thread;
    const auto outputs = Run(
        *program,
        {MakeVector<float>({1, 2, 3}), MakeScalar<float>(1000), MakeVector<float>({10, 20, 30})},
        std::move(options));
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_EQ(ValuesOf<float>((*outputs)[kOutput0]), (std::vector<float>{9, 18, 27}));
  }
}

TEST_F(ProgramTest, AnArgumentOfAnotherSizeIsRefusedWithBothShapes) {
  const auto program = Create(Describe(kDifference, 2, {OfType(tensorflow::DT_FLOAT)}));
  const Tensor three = MakeVector<float>({1, 2, 3});
  EXPECT_EQ(Run(*program, {three, MakeVector<float>({1, 2})}).status(),
            absl::InvalidArgumentError("Argument 1 of program train is float[2] (8 bytes); the "
                                       "program was compiled for f32[3] (12 bytes)."));
  // The program continues to work.
  EXPECT_TRUE(Run(*program, {three, three}).ok());
}

TEST_F(ProgramTest, AnUnalignedArgumentIsReadAllTheSame) {
  const auto program = Create(Describe(kDifference, 2, {OfType(tensorflow::DT_FLOAT)}));
  const Tensor many = MakeVector<float>({0, 1, 2, 3, 4, 5, 6, 7});
  const Tensor part = many.Slice(1, 4);
  ASSERT_NE(reinterpret_cast<uintptr_t>(part.data()) % 64, 0u);
  const auto outputs = Run(*program, {part, MakeVector<float>({1, 1, 1})});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ(ValuesOf<float>((*outputs)[kOutput0]), (std::vector<float>{0, 1, 2}));
}

TEST_F(ProgramTest, OutputsThatTheCompilerKnewStandBetweenTheComputed) {
  CompiledProgram::Output known = OfType(tensorflow::DT_INT32);
  known.constant = std::make_shared<const Tensor>(MakeVector<int32_t>({7, 8}));
  const auto program = Create(Describe(kDifference, 2, {known, OfType(tensorflow::DT_FLOAT)}));
  const auto outputs = Run(*program, {MakeVector<float>({1, 2, 3}), MakeVector<float>({3, 2, 1})});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_EQ(outputs->size(), 2);
  EXPECT_EQ(ValuesOf<int32_t>((*outputs)[kOutput0]), (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(ValuesOf<float>((*outputs)[kOutput1]), (std::vector<float>{-2, 0, 2}));
}

// An argument is returned unchanged, and one value is returned twice. No result may share memory
// that another run or the caller writes.
TEST_F(ProgramTest, ResultsThatShareMemoryComeOutWhole) {
  const auto program = Create(Describe(R"(
HloModule shared
ENTRY entry {
  x = f32[3] parameter(0)
  twice = f32[3] add(x, x)
  ROOT all = (f32[3], f32[3], f32[3]) tuple(x, twice, twice)
}
)",
                                       1, std::vector(3, OfType(tensorflow::DT_FLOAT))));
  const Tensor x = MakeVector<float>({1, 2, 3});
  const auto outputs = Run(*program, {x});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_NE((*outputs)[kOutput0].data(), x.data());
  EXPECT_EQ(ValuesOf<float>((*outputs)[kOutput0]), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(ValuesOf<float>((*outputs)[kOutput1]), (std::vector<float>{2, 4, 6}));
  EXPECT_EQ(ValuesOf<float>((*outputs)[OutputNumber(2)]), (std::vector<float>{2, 4, 6}));
  // Another run does not change them.
  ASSERT_TRUE(Run(*program, {MakeVector<float>({0, 0, 0})}).ok());
  EXPECT_EQ(ValuesOf<float>((*outputs)[kOutput1]), (std::vector<float>{2, 4, 6}));
}

// The rows of a table, and the number of real rows.
class DynamicProgramTest : public ProgramTest {
 protected:
  std::shared_ptr<Program> MakeRows() {
    CompiledProgram::Output rows = OfType(tensorflow::DT_FLOAT);
    rows.dynamic_sizes = {{1, ResultNumber(1)}};
    return Create(Describe(R"(
HloModule rows
ENTRY entry {
  x = f32[2,3] parameter(0)
  size = s32[] parameter(1)
  negative = f32[2,3] negate(x)
  one = s32[] constant(1)
  bigger = s32[] add(size, one)
  ROOT all = (f32[2,3], s32[]) tuple(negative, bigger)
}
)",
                           2, {rows}));
  }

  const Tensor table_of_six_ = MakeTensor<float>({1, 2, 3, 4, 5, 6}, TensorShape({2, 3}));
};

TEST_F(DynamicProgramTest, AnOutputIsCutToItsSize) {
  const auto program = MakeRows();
  const auto outputs = Run(*program, {table_of_six_, MakeScalar<int32_t>(1)});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_EQ(outputs->size(), 1);
  EXPECT_EQ((*outputs)[kOutput0].shape(), TensorShape({2, 2}));
  EXPECT_EQ(ValuesOf<float>((*outputs)[kOutput0]), (std::vector<float>{-1, -2, -4, -5}));
  const auto whole = Run(*program, {table_of_six_, MakeScalar<int32_t>(2)});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ((*whole)[kOutput0].shape(), TensorShape({2, 3}));
}

TEST_F(DynamicProgramTest, ASizeThatIsNoneIsAnError) {
  const auto program = MakeRows();
  for (const int size : {-2, 3}) {
    const absl::Status status = Run(*program, {table_of_six_, MakeScalar<int32_t>(size)}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(),
                                  "for dimension 1 of result 0; it must be from "
                                  "0 to 3"))
        << status;
  }
}

constexpr char kIncrement[] = R"(
HloModule increment, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY entry {
  variable = f32[3] parameter(0)
  one = f32[] constant(1)
  ones = f32[3] broadcast(one), dimensions={}
  sum = f32[3] add(variable, ones)
  ROOT all = (f32[3]) tuple(sum)
}
)";

TEST_F(ProgramTest, OverwritesOnlyArgumentsThatItMay) {
  const auto program = Create(Describe(kIncrement, 1, {OfType(tensorflow::DT_FLOAT)}));
  const Tensor variable = MakeVector<float>({1, 2, 3});
  const auto copied = Run(*program, {variable});
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(ValuesOf<float>(variable), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(ValuesOf<float>((*copied)[kOutput0]), (std::vector<float>{2, 3, 4}));
  RunOptions options;
  options.overwritable = {kArgument0};
  const auto in_place = Run(*program, {variable}, std::move(options));
  ASSERT_TRUE(in_place.ok()) << in_place.status();
  EXPECT_EQ((*in_place)[kOutput0].data(), variable.data());
  EXPECT_EQ(ValuesOf<float>(variable), (std::vector<float>{2, 3, 4}));
}

TEST_F(ProgramTest, WritesCombinedOutputsWhereAnEarlierRunDid) {
  CompiledProgram compiled = Describe(kDifference, 2, {OfType(tensorflow::DT_FLOAT)});
  compiled.num_combined_outputs = 1;
  const auto program = Create(std::move(compiled));
  const Arguments arguments = {MakeVector<float>({4, 5, 6}), MakeVector<float>({1, 1, 1})};
  auto first = Run(*program, arguments);
  ASSERT_TRUE(first.ok()) << first.status();
  const void* const memory = (*first)[kOutput0].data();
  // Until it is recycled, the memory belongs to whoever has the output.
  auto second = Run(*program, arguments);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE((*second)[kOutput0].data(), memory);
  (*first)[kOutput0].flat<float>().setZero();
  program->Recycle(std::move(first->values()));
  const auto third = Run(*program, arguments);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ((*third)[kOutput0].data(), memory);
  EXPECT_EQ(ValuesOf<float>((*third)[kOutput0]), (std::vector<float>{3, 4, 5}));
}

TEST_F(ProgramTest, KnowsHowLongItsRunsTake) {
  const auto program = Create(Describe(kDifference, 2, {OfType(tensorflow::DT_FLOAT)}));
  EXPECT_EQ(program->typical_run(), absl::InfiniteDuration());
  const Tensor three = MakeVector<float>({1, 2, 3});
  ASSERT_TRUE(Run(*program, {three, three}).ok());
  EXPECT_GE(program->typical_run(), absl::ZeroDuration());
  EXPECT_LT(program->typical_run(), absl::InfiniteDuration());
}

TEST_F(ProgramTest, CountsThePaddingOfItsArguments) {
  CompiledProgram compiled = Describe(kDifference, 2, {OfType(tensorflow::DT_FLOAT)});
  compiled.padded_arguments = {{kArgument0, {{0, kArgument2}}}};
  const Tensor three = MakeVector<float>({1, 2, 3});
  ASSERT_TRUE(Run(*Create(std::move(compiled)), {three, three, MakeScalar<int32_t>(1)}).ok());
  EXPECT_EQ(padding_.Totals().elements, 3);
  EXPECT_EQ(padding_.Totals().padding, 2);
}

TEST_F(ProgramTest, FindsTheSlotOfACore) {
  CompiledProgram compiled = Describe(kDifference, 2, {OfType(tensorflow::DT_FLOAT)});
  EXPECT_EQ(*Create(compiled)->SlotOfCore(Core(5)), Slot(0));
  compiled.cores = {Core(4), Core(6)};
  const auto program = Create(std::move(compiled));
  EXPECT_EQ(*program->SlotOfCore(Core(6)), Slot(1));
  const absl::Status status = program->SlotOfCore(Core(5)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(absl::StrContains(
      status.message(), "Program train was compiled for the cores [4, 6] and was sent to core 5"))
      << status;
}

TEST_F(ProgramTest, TheProgramOfOneReplicaIsCompiledWhenItIsAskedFor) {
  const auto alone = std::make_shared<const CompiledProgram>(
      Describe(kDifference, 2, {OfType(tensorflow::DT_FLOAT)}));
  auto batched = std::make_shared<BatchedReplicas>();
  batched->program = alone;
  int builds = 0;
  batched->build_alone = [&]() -> absl::StatusOr<std::shared_ptr<const CompiledProgram>> {
    if (++builds == 1) return absl::ResourceExhaustedError("no memory");
    return alone;
  };
  CompiledProgram compiled;
  compiled.batched = batched;
  const auto program = Create(std::move(compiled));
  ASSERT_NE(program->batched(), nullptr);
  EXPECT_EQ(program->AloneIfBuilt(), nullptr);
  // After a failure, it tries again.
  EXPECT_EQ(program->Alone().status(), absl::ResourceExhaustedError("no memory"));
  EXPECT_EQ(program->AloneIfBuilt(), nullptr);
  const auto built = program->Alone();
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(program->AloneIfBuilt(), *built);
  EXPECT_EQ(*program->Alone(), *built);
  EXPECT_EQ(builds, 2);
  const Tensor three = MakeVector<float>({1, 2, 3});
  EXPECT_TRUE(Run(**built, {three, three}).ok());
}

}  // namespace
}  // namespace tf_tpu_ext
