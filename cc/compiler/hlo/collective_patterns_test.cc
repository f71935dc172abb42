#include "cc/compiler/hlo/collective_patterns.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cc/compiler/hlo/test_module.h"
#include "gtest/gtest.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace tf_tpu_ext {
namespace {

std::unique_ptr<xla::HloModule> Reduction(const std::string& attributes) {
  return ParseModule(absl::StrCat(R"(
HloModule reduction

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

ENTRY entry {
  x = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(x), to_apply=sum)",
                                  attributes, "\n}\n"));
}

bool MeetsFour(const std::string& attributes) {
  return MeetsAllReplicas(*Reduction(attributes)->entry_computation()->root_instruction(), 4);
}

TEST(MeetsAllReplicasTest, OfOneGroupInOrder) {
  EXPECT_TRUE(MeetsFour(""));
  EXPECT_TRUE(MeetsFour(", replica_groups={{0,1,2,3}}"));
  EXPECT_TRUE(MeetsFour(", replica_groups=[1,4]<=[4]"));
  EXPECT_FALSE(MeetsFour(", replica_groups={{0,1},{2,3}}"));
  EXPECT_FALSE(MeetsFour(", replica_groups={{0,1,2}}"));
  EXPECT_FALSE(MeetsFour(", replica_groups={{1,0,2,3}}"));
  EXPECT_FALSE(MeetsFour(", channel_id=1"));
  EXPECT_FALSE(MeetsFour(", replica_groups={{0,1,2,3}}, channel_id=1, use_global_device_ids=true"));
}

TEST(MeetsAllReplicasTest, AsMadeForThem) {
  const std::unique_ptr<xla::HloModule> module = Reduction("");
  xla::HloComputation* entry = module->entry_computation();
  const xla::HloInstruction* given = entry->root_instruction();
  const xla::HloInstruction* made = entry->AddInstruction(xla::HloInstruction::CreateAllReduce(
      given->shape(), {entry->parameter_instruction(0)}, given->to_apply(), AllReplicas(3),
      /*constrain_layout=*/false, /*channel_id=*/std::nullopt, /*use_global_device_ids=*/false));
  EXPECT_TRUE(MeetsAllReplicas(*made, 3));
  EXPECT_FALSE(MeetsAllReplicas(*made, 4));
  ExpectValid(module.get());
}

TEST(ReducerOpcodeTest, OfReducersThatDoOneThing) {
  const auto opcode = [](const std::string& body, xla::PrimitiveType type = xla::F32) {
    const std::unique_ptr<xla::HloModule> module = ParseModule(absl::StrCat(
        "HloModule reducer\n\nENTRY entry {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n",
        body, "\n}\n"));
    return ReducerOpcode(*module->entry_computation(), type);
  };
  EXPECT_EQ(opcode("  ROOT r = f32[] add(a, b)"), xla::HloOpcode::kAdd);
  EXPECT_EQ(opcode("  ROOT r = f32[] maximum(b, a)"), xla::HloOpcode::kMaximum);
  EXPECT_EQ(opcode("  ROOT r = f32[] add(a, a)"), std::nullopt);
  EXPECT_EQ(opcode("  ROOT r = f32[] add(a, b)", xla::BF16), std::nullopt);
  EXPECT_EQ(opcode("  s = f32[] add(a, b)\n  ROOT r = f32[] negate(s)"), std::nullopt);
}

constexpr char kFirst[] = R"(
HloModule first

ENTRY entry {
  x = f32[4] parameter(0)
  row = f32[1,4] reshape(x)
  same = f32[1,4] reshape(x)
  other = f32[1,4] negate(row)
  rows = f32[3,4] concatenate(row, same, row), dimensions={0}
  sent = f32[3,4] all-to-all(rows), dimensions={0}, replica_groups={{0,1,2}}
  ROOT r = f32[1,4] slice(sent), slice={[0:1], [0:4]}
}
)";

// The name of the instruction that is sent, or nothing.
std::string Sent(const std::string& text, int num_replicas = 3) {
  const std::unique_ptr<xla::HloModule> module = ParseModule(text);
  const xla::HloInstruction* sent =
      FirstReplicasValue(*module->entry_computation()->root_instruction(), num_replicas);
  return sent == nullptr ? "" : std::string(sent->name());
}

TEST(FirstReplicasValueTest, IsWhatEachReplicaSendsToAll) {
  EXPECT_EQ(Sent(kFirst), "row");
  EXPECT_EQ(Sent(kFirst, 4), "");
  for (const auto& [what, instead] :
       {std::pair("row, same, row", "row, same, other"),
        std::pair("{[0:1], [0:4]}", "{[1:2], [0:4]}"), std::pair("{{0,1,2}}", "{{1,0,2}}"),
        std::pair("all-to-all(rows), dimensions={0}, replica_groups="
                  "{{0,1,2}}",
                  "negate(rows)")}) {
    EXPECT_EQ(Sent(absl::StrReplaceAll(kFirst, {{what, instead}})), "") << instead;
  }
}

}  // namespace
}  // namespace tf_tpu_ext
