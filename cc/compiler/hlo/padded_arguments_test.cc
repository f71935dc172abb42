#include "cc/compiler/hlo/padded_arguments.h"

#include <initializer_list>
#include <string>

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

class PaddedArgumentsTest : public ::testing::Test {
 protected:
  PaddedArgumentsTest() : entry_(module_.add_computations()) {
    entry_->set_id(1);
    module_.set_entry_computation_id(1);
  }

  int64_t Add(const std::string& opcode, std::initializer_list<int64_t> operands) {
    xla::HloInstructionProto* instruction = entry_->add_instructions();
    const int64_t local_id = entry_->instructions_size();
    instruction->set_id(entry_->id() << 32 | local_id);
    instruction->set_opcode(opcode);
    for (int64_t operand : operands) instruction->add_operand_ids(operand);
    return local_id;
  }

  int64_t Parameter(int number) {
    const int64_t id = Add("parameter", {});
    entry_->mutable_instructions()->rbegin()->set_parameter_number(number);
    return id;
  }

  int64_t SetSize(int64_t array, int64_t size, int dimension) {
    const int64_t id = Add("set-dimension-size", {array, size});
    entry_->mutable_instructions()->rbegin()->add_dimensions(dimension);
    return id;
  }

  xla::HloModuleProto module_;
  xla::HloComputationProto* entry_;
};

TEST_F(PaddedArgumentsTest, FindsEveryDimensionOfAnArgument) {
  const int64_t array = Parameter(0);
  const int64_t rows = Parameter(1);
  const int64_t columns = Parameter(2);
  const int64_t plain = Parameter(3);
  SetSize(SetSize(array, rows, 0), Add("reshape", {columns}), 2);
  // Sizes that the program computes tell nothing of the host's padding.
  SetSize(plain, Add("add", {rows, columns}), 0);
  SetSize(Add("add", {plain, plain}), rows, 0);
  const std::vector<PaddedArgument> padded = PaddedArguments(module_, {5, 6, 7, 8});
  ASSERT_EQ(padded.size(), 1u);
  EXPECT_EQ(padded[0].argument, 5);
  EXPECT_EQ(padded[0].sizes, (std::vector<std::pair<int, int>>{{0, 6}, {2, 7}}));
}

TEST_F(PaddedArgumentsTest, OddModulesHoldNone) {
  SetSize(Parameter(9), Parameter(0), 0);
  Add("set-dimension-size", {});
  EXPECT_TRUE(PaddedArguments(module_, {0}).empty());
  EXPECT_TRUE(PaddedArguments(xla::HloModuleProto(), {}).empty());
}

TEST(CountPaddingTest, CountsElementsBeyondTheSizes) {
  Tensor rows(tensorflow::DT_INT32, {});
  rows.scalar<int32_t>()() = 3;
  Tensor columns(tensorflow::DT_INT64, {1});
  columns.flat<int64_t>()(0) = 5;
  const Tensor array(tensorflow::DT_FLOAT, {4, 10});
  const PaddingTotals before = TotalPadding();
  CountPadding({{0, {{0, 1}, {1, 2}}}}, {array, rows, columns});
  const PaddingTotals after = TotalPadding();
  EXPECT_EQ(after.elements - before.elements, 40);
  EXPECT_EQ(after.padding - before.padding, 25);
  // What can't be read is taken for full.
  CountPadding({{0, {{0, 0}, {1, 9}, {7, 1}}}, {9, {}}}, {array, rows});
  EXPECT_EQ(TotalPadding().elements - after.elements, 40);
  EXPECT_EQ(TotalPadding().padding, after.padding);
}

}  // namespace
}  // namespace tf_tpu_ext
