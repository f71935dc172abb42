#include "cc/compiler/hlo/module.h"

#include <memory>
#include <utility>

#include "cc/compiler/hlo/test_module.h"
#include "gtest/gtest.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/hlo/ir/hlo_input_output_alias_config.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

TEST(ModuleTest, WhatLoweringMakesIsWhatTheCompilerGets) {
  xla::XlaBuilder builder("step");
  const xla::Shape shape = xla::ShapeUtil::MakeShape(xla::F32, {2, 3});
  const xla::XlaOp x = xla::Parameter(&builder, 0, shape, "x");
  const xla::XlaOp y = xla::Parameter(&builder, 1, shape, "y");
  xla::Tuple(&builder, {xla::Add(x, y), x});
  builder.SetUpAlias({0}, 1, {});
  auto lowered = builder.Build();
  ASSERT_TRUE(lowered.ok()) << lowered.status();

  auto module = ToModule(*lowered);
  ASSERT_TRUE(module.ok()) << module.status();
  ExpectValid(module->get());
  EXPECT_EQ(CountOps(*(*module)->entry_computation(), xla::HloOpcode::kAdd), 1);
  auto compiled = ToModule(ToComputation(**module));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  ExpectValid(compiled->get());
  EXPECT_EQ((*compiled)->ToString(), (*module)->ToString());
  EXPECT_TRUE((*compiled)->input_output_alias_config().ParameterHasAlias(1, {}));
  const auto program = ToComputation(**module).GetProgramShape();
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->result(), lowered->GetProgramShape()->result());
  EXPECT_EQ(program->parameters(), lowered->GetProgramShape()->parameters());
}

TEST(ModuleTest, NotEveryProtoIsAModule) { EXPECT_FALSE(ToModule(xla::XlaComputation()).ok()); }

constexpr char kStep[] = R"(
HloModule step, input_output_alias={ {0}: (0, {}, may-alias) }

ENTRY entry {
  x = f32[4] parameter(0)
  y = f32[4] negate(x)
  ROOT all = (f32[4]) tuple(y)
}
)";

TEST(ModuleTest, AnotherResultHasAShapeAndAliasesOfItsOwn) {
  const std::unique_ptr<xla::HloModule> module = ParseModule(kStep);
  xla::HloComputation* entry = module->entry_computation();
  xla::HloInstruction* y = Find(*module, "y");
  entry->set_root_instruction(entry->AddInstruction(xla::HloInstruction::CreateTuple({y, y})),
                              /*accept_different_shape=*/true);
  ResultChanged(module.get());
  ExpectValid(module.get());
  EXPECT_FALSE(module->input_output_alias_config().ParameterHasAlias(0, {}));
  EXPECT_TRUE(module->input_output_alias_config()
                  .SetUpAlias({1}, 0, {}, xla::HloInputOutputAliasConfig::kMayAlias)
                  .ok());
  EXPECT_EQ(ToComputation(*module).GetProgramShape()->result().tuple_shapes().size(), 2u);
}

TEST(ModuleTest, AnotherProgramKeepsTheName) {
  const std::unique_ptr<xla::HloModule> module = ParseModule(kStep);
  const std::unique_ptr<xla::HloModule> empty = EmptyModuleLike(*module);
  EXPECT_EQ(empty->name(), "step");
  EXPECT_FALSE(empty->has_entry_computation());
  xla::HloComputation::Builder builder("entry");
  builder.AddInstruction(
      xla::HloInstruction::CreateParameter(0, xla::ShapeUtil::MakeShape(xla::S32, {7}), "numbers"));
  AddEntry(builder.Build(), empty.get());
  ExpectValid(empty.get());
  EXPECT_EQ(empty->entry_computation_layout().parameter_shape(0),
            xla::ShapeUtil::MakeShape(xla::S32, {7}));
}

}  // namespace
}  // namespace tf_tpu_ext
