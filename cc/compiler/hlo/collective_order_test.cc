#include "cc/compiler/hlo/collective_order.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "cc/compiler/hlo/module.h"
#include "cc/compiler/hlo/test_module.h"
#include "gtest/gtest.h"
#include "xla/hlo/ir/hlo_instruction.h"

namespace tf_tpu_ext {
namespace {

constexpr char kLoops[] = R"(
HloModule loops

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

condition {
  x = f32[4] parameter(0)
  ROOT never = pred[] constant(false)
}

body {
  x = f32[4] parameter(0)
  inner_first = f32[4] all-reduce(x), to_apply=sum
  y = f32[4] add(x, x)
  inner_last = f32[4] collective-permute(y), source_target_pairs={{0,1},{1,0}}
  ROOT z = f32[4] add(inner_first, inner_last)
}

plain_body {
  x = f32[4] parameter(0)
  ROOT y = f32[4] multiply(x, x)
}

ENTRY entry {
  x = f32[4] parameter(0)
  zero = f32[] constant(0)
  first = f32[4] all-reduce(x), to_apply=sum
  plain = f32[4] while(x), condition=condition, body=plain_body
  loop = f32[4] while(x), condition=condition, body=body
  total = f32[] reduce(x, zero), dimensions={0}, to_apply=sum
  last = f32[8] all-gather(x), dimensions={0}
  ROOT all = (f32[4], f32[4], f32[4], f32[], f32[8]) tuple(first, plain, loop, total, last)
}
)";

// The names of the control predecessors of an instruction.
std::string Before(const xla::HloInstruction* instruction) {
  std::string names;
  for (const xla::HloInstruction* each : instruction->control_predecessors()) {
    absl::StrAppend(&names, each->name(), " ");
  }
  return names;
}

TEST(OrderCollectivesTest, ChainsCollectivesAndWhatHoldsThem) {
  std::unique_ptr<xla::HloModule> module = ParseModule(kLoops);
  ASSERT_TRUE(OrderCollectives(module.get()).ok());
  ExpectValid(module.get());
  EXPECT_EQ(Before(Find(*module, "first")), "");
  EXPECT_EQ(Before(Find(*module, "loop")), "first ");
  EXPECT_EQ(Before(Find(*module, "last")), "loop ");
  EXPECT_EQ(Before(Find(*module, "plain")), "");
  EXPECT_EQ(Before(Find(*module, "total")), "");
  const xla::HloComputation* body = module->GetComputationWithName("body");
  for (const xla::HloInstruction* instruction : body->instructions()) {
    EXPECT_EQ(Before(instruction), instruction->name() == "inner_last" ? "inner_first " : "");
  }
}

TEST(OrderCollectivesTest, TheCompilerGetsTheOrder) {
  std::unique_ptr<xla::HloModule> module = ParseModule(kLoops);
  ASSERT_TRUE(OrderCollectives(module.get()).ok());
  auto compiled = ToModule(ToComputation(*module));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  ExpectValid(compiled->get());
  EXPECT_EQ(Before(Find(**compiled, "last")), "loop ");
}

TEST(OrderCollectivesTest, LeavesOtherModulesAlone) {
  std::unique_ptr<xla::HloModule> module = ParseModule(R"(
HloModule one

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY entry {
  x = f32[4] parameter(0)
  y = f32[4] add(x, x)
  ROOT z = f32[4] all-reduce(y), to_apply=sum
}
)");
  const std::string before = module->ToString();
  ASSERT_TRUE(OrderCollectives(module.get()).ok());
  EXPECT_EQ(module->ToString(), before);
}

TEST(HasCollectivesTest, FindsEachKindOfThem) {
  for (const char* collective :
       {"f32[4] all-reduce(x), to_apply=sum", "f32[8] all-gather(x), dimensions={0}",
        "f32[2] reduce-scatter(x), dimensions={0}, replica_groups={{0,1}}, to_apply=sum",
        "f32[4] all-to-all(x), dimensions={0}, replica_groups={{0,1}}",
        "f32[4] collective-permute(x), source_target_pairs={{0,1}}",
        "f32[4] collective-broadcast(x), replica_groups={{0,1}}"}) {
    std::unique_ptr<xla::HloModule> module = ParseModule(absl::StrCat(R"(
HloModule one

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY entry {
  x = f32[4] parameter(0)
  ROOT y = )",
                                                                      collective, "\n}\n"));
    EXPECT_TRUE(HasCollectives(*module)) << collective;
  }
  EXPECT_TRUE(HasCollectives(*ParseModule(kLoops)));
  EXPECT_FALSE(
      HasCollectives(*ParseModule("HloModule none\n\nENTRY entry {\n  x = f32[4] parameter(0)\n  "
                                  "ROOT y = f32[4] tanh(x)\n}\n")));
}

}  // namespace
}  // namespace tf_tpu_ext
