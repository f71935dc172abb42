#include "cc/compiler/hlo/cut_chains.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cc/program/chain_cut.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputationProto;
using xla::HloInstructionProto;
using xla::HloModuleProto;

constexpr int64_t kComputationBits = int64_t{7} << 32;

HloInstructionProto* Add(HloComputationProto* computation, const std::string& opcode,
                         const std::vector<const HloInstructionProto*>& operands) {
  HloInstructionProto* instruction = computation->add_instructions();
  instruction->set_opcode(opcode);
  // As XLA numbers them: the computation above, the number in it below.
  instruction->set_id(kComputationBits + computation->instructions_size());
  instruction->mutable_shape()->set_element_type(xla::F32);
  instruction->mutable_shape()->add_dimensions(3);
  instruction->mutable_shape()->add_is_dynamic_dimension(false);
  for (const HloInstructionProto* operand : operands) instruction->add_operand_ids(operand->id());
  return instruction;
}

// A chain of so many ops from the instruction on.
HloInstructionProto* AddChain(HloComputationProto* computation, HloInstructionProto* first,
                              int length) {
  HloInstructionProto* last = first;
  for (int i = 0; i < length; ++i) last = Add(computation, "multiply", {last, first});
  return last;
}

HloComputationProto* AddComputation(HloModuleProto* module, int64_t id) {
  HloComputationProto* computation = module->add_computations();
  computation->set_id(id);
  return computation;
}

// A module, and the first op of its entry computation.
struct Entry {
  Entry() {
    computation = AddComputation(&module, 1);
    module.set_entry_computation_id(1);
    parameter = Add(computation, "parameter", {});
  }
  HloModuleProto module;
  HloComputationProto* computation;
  HloInstructionProto* parameter;
};

bool IsCut(const HloInstructionProto& instruction) {
  return instruction.custom_call_target() == kChainCutTarget;
}

int NumCuts(const HloComputationProto& computation) {
  int cuts = 0;
  for (const HloInstructionProto& instruction : computation.instructions()) {
    cuts += IsCut(instruction) ? 1 : 0;
  }
  return cuts;
}

// Of the ops in the order of the computation: the longest chain without a cut. Fails if an operand
// doesn't stand before its user.
int LongestChain(const HloComputationProto& computation) {
  std::map<int64_t, int> lengths;
  int longest = 0;
  for (const HloInstructionProto& instruction : computation.instructions()) {
    int length = 1;
    for (int64_t operand : instruction.operand_ids()) {
      EXPECT_TRUE(lengths.count(operand) > 0) << instruction.name();
      length = std::max(length, lengths[operand] + 1);
    }
    const bool ends =
        IsCut(instruction) || instruction.opcode() == "parameter" || instruction.opcode() == "dot";
    EXPECT_TRUE(lengths.emplace(instruction.id(), ends ? 0 : length).second);
    longest = std::max(longest, ends ? 0 : length);
  }
  return longest;
}

TEST(CutChainsTest, CutsChainsThatAreLonger) {
  Entry entry;
  HloInstructionProto* last = AddChain(entry.computation, entry.parameter, 35);
  last->mutable_metadata()->set_op_name("the last");
  const int64_t root = last->id();
  CutChains(10, &entry.module);
  EXPECT_EQ(NumCuts(*entry.computation), 3);
  EXPECT_EQ(LongestChain(*entry.computation), 10);
  EXPECT_EQ(entry.computation->instructions_size(), 1 + 35 + 3);
  EXPECT_EQ(entry.computation->instructions(38).id(), root);
}

TEST(CutChainsTest, LeavesOthersAsTheyAre) {
  Entry entry;
  AddChain(entry.computation, entry.parameter, 10);
  HloInstructionProto* product = Add(entry.computation, "dot", {entry.parameter, entry.parameter});
  product =
      Add(entry.computation, "dot", {AddChain(entry.computation, product, 10), entry.parameter});
  AddChain(entry.computation, product, 10);
  const std::string before = entry.module.SerializeAsString();
  CutChains(10, &entry.module);
  EXPECT_EQ(entry.module.SerializeAsString(), before);
}

TEST(CutChainsTest, CutHasTheValueInTheSameMemory) {
  Entry entry;
  HloInstructionProto* value = AddChain(entry.computation, entry.parameter, 2);
  value->mutable_metadata()->set_op_name("value");
  const int64_t id = value->id(), parameter = entry.parameter->id();
  const std::string shape = value->shape().SerializeAsString();
  Add(entry.computation, "add", {value, value});
  Add(entry.computation, "subtract", {value, entry.parameter});
  CutChains(2, &entry.module);
  ASSERT_EQ(NumCuts(*entry.computation), 1) << "its users share it";
  const HloInstructionProto& cut = entry.computation->instructions(3);
  ASSERT_TRUE(IsCut(cut));
  EXPECT_EQ(cut.operand_ids(0), id);
  EXPECT_EQ(cut.shape().SerializeAsString(), shape);
  EXPECT_EQ(cut.metadata().op_name(), "value");
  ASSERT_EQ(cut.output_operand_aliasing_size(), 1);
  EXPECT_EQ(cut.output_operand_aliasing(0).operand_index(), 0);
  for (int user : {4, 5}) EXPECT_EQ(entry.computation->instructions(user).operand_ids(0), cut.id());
  EXPECT_EQ(entry.computation->instructions(5).operand_ids(1), parameter);
}

TEST(CutChainsTest, CutsInLoopsButNotInReducers) {
  Entry entry;
  HloComputationProto* body = AddComputation(&entry.module, 2);
  AddChain(body, Add(body, "parameter", {}), 7);
  HloComputationProto* reducer = AddComputation(&entry.module, 3);
  AddChain(reducer, Add(reducer, "parameter", {}), 7);
  HloInstructionProto* loop = Add(entry.computation, "while", {entry.parameter});
  loop->add_called_computation_ids(2);
  HloInstructionProto* reduction = Add(entry.computation, "reduce", {loop});
  reduction->add_called_computation_ids(3);
  CutChains(5, &entry.module);
  EXPECT_EQ(NumCuts(*body), 1);
  EXPECT_EQ(NumCuts(*reducer), 0);
  EXPECT_EQ(NumCuts(*entry.computation), 0);
}

TEST(CutChainsTest, ModulesWithDynamicSizesStayAsTheyAre) {
  Entry entry;
  AddChain(entry.computation, entry.parameter, 7)
      ->mutable_shape()
      ->set_is_dynamic_dimension(0, true);
  CutChains(5, &entry.module);
  EXPECT_EQ(NumCuts(*entry.computation), 0);
}

TEST(CutChainsTest, LongChainsNeedNoStack) {
  Entry entry;
  AddChain(entry.computation, entry.parameter, 200000);
  CutChains(200, &entry.module);
  EXPECT_EQ(NumCuts(*entry.computation), 999);
  EXPECT_EQ(LongestChain(*entry.computation), 200);
}

}  // namespace
}  // namespace tf_tpu_ext
