#include "cc/embedding/update_program.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "cc/embedding/row_optimizer.h"
#include "gtest/gtest.h"
#include "tensorflow/core/protobuf/tpu/optimization_parameters.pb.h"
#include "xla/hlo/builder/lib/arithmetic.h"
#include "xla/hlo/builder/lib/constants.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/hlo/builder/xla_computation.h"
#include "xla/service/hlo.pb.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

using xla::XlaOp;

const xla::Shape& OneValue() {
  static const auto* const shape = new xla::Shape(xla::ShapeUtil::MakeShape(xla::F32, {1, 1}));
  return *shape;
}

xla::HloModuleProto Built(xla::XlaBuilder* builder) {
  auto computation = builder->Build();
  EXPECT_TRUE(computation.ok()) << computation.status();
  return computation->proto();
}

// Momentum whose sign flips where the gradient is not positive.
xla::HloModuleProto Momentum(bool with_rate) {
  xla::XlaBuilder builder("momentum");
  const XlaOp gradient = xla::Parameter(&builder, 0, OneValue(), "gradient");
  const XlaOp table = xla::Parameter(&builder, 1, OneValue(), "table");
  const XlaOp slot = xla::Parameter(&builder, 2, OneValue(), "slot");
  const XlaOp rate =
      with_rate ? xla::Parameter(&builder, 3, xla::ShapeUtil::MakeShape(xla::F32, {}), "rate")
                : xla::ConstantR0<float>(&builder, 0.5f);
  const XlaOp decay = xla::ConstantR2<float>(&builder, {{0.75f}});
  const XlaOp one = xla::ScalarLike(gradient, 1);
  const XlaOp sign = xla::Select(xla::Gt(gradient, xla::ZerosLike(gradient)), one, -one);
  const XlaOp momentum = decay * slot + sign * gradient;
  xla::Tuple(&builder, {table - xla::Broadcast(rate, {1, 1}) * momentum, momentum});
  return Built(&builder);
}

// After an update of slots that are all one, with a gradient for each value.
void ExpectUpdated(const std::vector<float>& parameters, const std::vector<float>& slots,
                   const std::vector<float>& gradients, float rate) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    const float momentum = 0.75f + std::abs(gradients[i]);
    EXPECT_FLOAT_EQ(slots[i], momentum) << i;
    EXPECT_FLOAT_EQ(parameters[i], -rate * momentum) << i;
  }
}

void ExpectMomentum(const UpdateProgram& program, float rate) {
  std::vector<float> parameters = {1, 2, 3}, slot = {0.5f, 0, -1};
  program.Apply({2, -3, 0}, rate, parameters.data(), {slot.data()});
  const std::vector<float> momenta = {0.375f + 2, 3, -0.75f};
  EXPECT_EQ(slot, momenta);
  for (int i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(parameters[i], 1 + i - rate * momenta[i]);
}

TEST(UpdateProgramTest, UpdatesEachValueOfARow) {
  const auto program = UpdateProgram::Create(Momentum(/*with_rate=*/false), 3);
  ASSERT_TRUE(program.ok()) << program.status();
  ExpectMomentum(**program, 0.5f);
}

TEST(UpdateProgramTest, TakesTheLearningRate) {
  const auto program = UpdateProgram::Create(Momentum(/*with_rate=*/true), 3);
  ASSERT_TRUE(program.ok()) << program.status();
  ExpectMomentum(**program, 0.125f);
  ExpectMomentum(**program, 2);
}

TEST(UpdateProgramTest, UpdatesFewerValuesThanItsWidth) {
  const auto program = UpdateProgram::Create(Momentum(/*with_rate=*/true), 100);
  ASSERT_TRUE(program.ok()) << program.status();
  ExpectMomentum(**program, 0.25f);
}

TEST(UpdateProgramTest, UpdatesRowsOfATable) {
  // More than are evaluated at once, and every other row stays as it is.
  constexpr int64_t kRows = 1000, kWidth = 3;
  tensorflow::tpu::OptimizationParameters options;
  *options.mutable_user_defined_program()->mutable_program() = Momentum(/*with_rate=*/true);
  options.mutable_learning_rate()->set_constant(0.5f);
  const auto optimizer = RowOptimizer::Create(options, kWidth);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  EXPECT_EQ(optimizer->slots().size(), 1);

  std::vector<float> parameters(2 * kRows * kWidth, 0), slots(2 * kRows * kWidth, 1);
  std::vector<int64_t> rows;
  std::vector<float> gradients;
  for (int64_t row = kRows - 1; row >= 0; --row) {
    rows.push_back(2 * row);
    for (int64_t i = 0; i < kWidth; ++i) {
      gradients.push_back(static_cast<float>((row * kWidth + i) % 7 - 3));
    }
  }
  optimizer->ApplyToRows(rows, gradients.data(), {}, {parameters.data(), slots.data()});
  std::vector<float> updated_parameters, updated_slots;
  for (const int64_t row : rows) {
    for (int64_t i = row * kWidth; i < (row + 1) * kWidth; ++i) {
      updated_parameters.push_back(parameters[i]);
      updated_slots.push_back(slots[i]);
      EXPECT_EQ(parameters[i + kWidth], 0);
      EXPECT_EQ(slots[i + kWidth], 1);
    }
  }
  ExpectUpdated(updated_parameters, updated_slots, gradients, 0.5f);
}

TEST(UpdateProgramTest, ChecksTheNumberOfSlots) {
  const auto program = UpdateProgram::Create(Momentum(/*with_rate=*/false), 3);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE((*program)->CheckSlots(1).ok());
  EXPECT_EQ((*program)->CheckSlots(2).code(), absl::StatusCode::kInvalidArgument);
}

void ExpectRefused(const xla::HloModuleProto& proto, const std::string& reason) {
  const auto program = UpdateProgram::Create(proto, 3);
  EXPECT_EQ(program.status().code(), absl::StatusCode::kInvalidArgument) << reason;
  EXPECT_NE(program.status().message().find(reason), std::string::npos) << program.status();
}

TEST(UpdateProgramTest, RefusesWhatIsNotElementwise) {
  xla::XlaBuilder builder("reduces");
  const XlaOp gradient = xla::Parameter(&builder, 0, OneValue(), "gradient");
  const XlaOp table = xla::Parameter(&builder, 1, OneValue(), "table");
  const XlaOp sum = xla::Reduce(gradient, xla::ConstantR0<float>(&builder, 0),
                                xla::CreateScalarAddComputation(xla::F32, &builder), {0, 1});
  xla::Tuple(&builder, {table - xla::Broadcast(sum, {1, 1})});
  ExpectRefused(Built(&builder), "(reduce); expected only elementwise operations");
}

TEST(UpdateProgramTest, RefusesOtherShapesAndTypes) {
  xla::XlaBuilder wide("wide");
  const xla::Shape row = xla::ShapeUtil::MakeShape(xla::F32, {1, 8});
  xla::Tuple(&wide,
             {xla::Parameter(&wide, 0, row, "gradient") + xla::Parameter(&wide, 1, row, "table")});
  ExpectRefused(Built(&wide), "expected float32 values of the shape (1, 1)");

  xla::XlaBuilder integers("integers");
  const XlaOp gradient = xla::Parameter(&integers, 0, OneValue(), "gradient");
  xla::Parameter(&integers, 1, OneValue(), "table");
  xla::Tuple(&integers, {xla::ConvertElementType(gradient, xla::S32)});
  ExpectRefused(Built(&integers), "a result of the type S32");
}

TEST(UpdateProgramTest, RefusesOtherParametersAndResults) {
  xla::XlaBuilder single("single");
  const XlaOp gradient = xla::Parameter(&single, 0, OneValue(), "gradient");
  xla::Parameter(&single, 1, OneValue(), "table");
  xla::Neg(gradient);
  ExpectRefused(Built(&single), "no tuple as its root");

  xla::XlaBuilder many("many");
  const XlaOp value = xla::Parameter(&many, 0, OneValue(), "gradient");
  xla::Tuple(&many, {value, value});
  ExpectRefused(Built(&many), "1 parameters and 2 results");
}

TEST(UpdateProgramTest, RefusesDamagedPrograms) {
  ExpectRefused(xla::HloModuleProto(), "no entry computation");
  const xla::HloModuleProto good = Momentum(/*with_rate=*/true);
  for (int i = 0; i < good.computations(0).instructions_size(); ++i) {
    const auto change = [&good, i](auto&& edit) {
      xla::HloModuleProto bad = good;
      edit(bad.mutable_computations(0)->mutable_instructions(i));
      const auto program = UpdateProgram::Create(bad, 3);
      EXPECT_FALSE(program.ok()) << good.computations(0).instructions(i).name();
    };
    change([](xla::HloInstructionProto* instruction) { instruction->set_opcode("while"); });
    change([](xla::HloInstructionProto* instruction) { instruction->set_opcode("nonsense"); });
    change([](xla::HloInstructionProto* instruction) { instruction->add_operand_ids(-7); });
    change([](xla::HloInstructionProto* instruction) { instruction->set_id(123456); });
  }
}

}  // namespace
}  // namespace tf_tpu_ext
