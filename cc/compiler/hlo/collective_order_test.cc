#include "cc/compiler/hlo/collective_order.h"

#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

// Adds an instruction and returns its id.
int64_t Add(xla::HloComputationProto* computation, const std::string& opcode,
            std::initializer_list<int64_t> called = {}) {
  xla::HloInstructionProto* instruction = computation->add_instructions();
  instruction->set_id(computation->id() * 100 + computation->instructions_size());
  instruction->set_opcode(opcode);
  for (int64_t callee : called) instruction->add_called_computation_ids(callee);
  return instruction->id();
}

xla::HloComputationProto* AddComputation(xla::HloModuleProto* module, int64_t id) {
  xla::HloComputationProto* computation = module->add_computations();
  computation->set_id(id);
  return computation;
}

// What must run before each instruction, beside its operands.
std::map<int64_t, std::vector<int64_t>> Predecessors(const xla::HloModuleProto& module) {
  std::map<int64_t, std::vector<int64_t>> predecessors;
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation.instructions()) {
      const auto& ids = instruction.control_predecessor_ids();
      if (!ids.empty()) predecessors[instruction.id()].assign(ids.begin(), ids.end());
    }
  }
  return predecessors;
}

TEST(OrderCollectivesTest, ChainsCollectivesAndWhatHoldsThem) {
  xla::HloModuleProto module;
  xla::HloComputationProto* sum = AddComputation(&module, 1);
  Add(sum, "add");
  xla::HloComputationProto* body = AddComputation(&module, 2);
  const int64_t in_loop = Add(body, "all-reduce", {1});
  Add(body, "add");
  const int64_t last_in_loop = Add(body, "collective-permute");
  xla::HloComputationProto* plain_body = AddComputation(&module, 3);
  Add(plain_body, "multiply");
  xla::HloComputationProto* entry = AddComputation(&module, 4);
  module.set_entry_computation_id(4);
  Add(entry, "parameter");
  const int64_t first = Add(entry, "all-reduce", {1});
  Add(entry, "while", {3});
  const int64_t loop = Add(entry, "while", {2});
  Add(entry, "reduce", {1});
  const int64_t last = Add(entry, "all-gather");

  OrderCollectives(&module);
  const std::map<int64_t, std::vector<int64_t>> expected = {
      {last_in_loop, {in_loop}}, {loop, {first}}, {last, {loop}}};
  EXPECT_EQ(Predecessors(module), expected);
}

TEST(OrderCollectivesTest, LeavesOtherModulesAlone) {
  xla::HloModuleProto module;
  xla::HloComputationProto* entry = AddComputation(&module, 1);
  module.set_entry_computation_id(1);
  Add(entry, "add");
  Add(entry, "all-reduce");
  const std::string before = module.SerializeAsString();
  OrderCollectives(&module);
  EXPECT_EQ(module.SerializeAsString(), before);
}

}  // namespace
}  // namespace tf_tpu_ext
