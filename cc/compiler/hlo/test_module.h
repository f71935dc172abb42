// Creates HLO modules for tests from text, checked by XLA's verifier.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_TEST_MODULE_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_TEST_MODULE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "xla/hlo/evaluator/hlo_evaluator.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/hlo/parser/hlo_parser.h"
#include "xla/literal.h"
#include "xla/service/hlo_verifier.h"
#include "xla/shape.h"

namespace tf_tpu_ext {

inline void ExpectValid(xla::HloModule* module) {
  xla::HloVerifier verifier(/*layout_sensitive=*/false, /*allow_mixed_precision=*/false);
  const absl::Status status = verifier.Run(module).status();
  EXPECT_TRUE(status.ok()) << status << "\n" << module->ToString();
}

// Parses the text, which must be a valid module.
inline std::unique_ptr<xla::HloModule> ParseModule(absl::string_view text) {
  auto parsed = xla::ParseAndReturnUnverifiedModule(text);
  // Without its module, no test makes sense.
  CHECK_OK(parsed.status());
  ExpectValid(parsed->get());
  return *std::move(parsed);
}

inline int CountOps(const xla::HloComputation& computation, xla::HloOpcode opcode) {
  return absl::c_count_if(computation.instructions(), [&](const xla::HloInstruction* instruction) {
    return instruction->opcode() == opcode;
  });
}

// The module's result, if `make` makes each of its arguments.
inline xla::Literal ValueOf(const xla::HloModule& module,
                            xla::Literal (*make)(const xla::Shape& shape)) {
  std::vector<xla::Literal> arguments;
  for (const xla::HloInstruction* parameter :
       module.entry_computation()->parameter_instructions()) {
    arguments.push_back(make(parameter->shape()));
  }
  std::vector<const xla::Literal*> pointers;
  for (const xla::Literal& argument : arguments) pointers.push_back(&argument);
  auto value = xla::HloEvaluator().Evaluate(module, pointers);
  CHECK_OK(value.status());
  return *std::move(value);
}

// Looks in the module's entry computation.
inline xla::HloInstruction* Find(const xla::HloModule& module, absl::string_view name) {
  return module.entry_computation()->GetInstructionWithName(name);
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_TEST_MODULE_H_
