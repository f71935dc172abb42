#include "cc/compiler/hlo/native_random_bits.h"

#include <memory>
#include <string>

#include "absl/strings/str_replace.h"
#include "cc/compiler/hlo/test_module.h"
#include "cc/program/random_bits.h"
#include "gtest/gtest.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace tf_tpu_ext {
namespace {

constexpr char kBits[] = R"(
HloModule random

ENTRY entry {
  state = u64[3] parameter(0)
  both = (u64[3], u32[8,16]) rng-bit-generator(state), algorithm=rng_philox
  next = u64[3] get-tuple-element(both), index=0
  bits = u32[8,16] get-tuple-element(both), index=1
  ROOT results = (u64[3], u32[8,16]) tuple(next, bits)
}
)";

std::unique_ptr<xla::HloModule> Made(const std::string& text) {
  std::unique_ptr<xla::HloModule> module = ParseModule(text);
  EXPECT_TRUE(MakeRandomBitsNatively(module.get()).ok());
  ExpectValid(module.get());
  return module;
}

bool CallsFor(const std::string& text) {
  return Made(text)->entry_computation()->root_instruction()->operand(1)->IsCustomCall(
      kRandomBitsTarget);
}

TEST(NativeRandomBitsTest, BitsAreOfACallAndTheStateIsNot) {
  const std::unique_ptr<xla::HloModule> module = Made(kBits);
  const xla::HloInstruction& results = *module->entry_computation()->root_instruction();
  EXPECT_TRUE(results.operand(1)->IsCustomCall(kRandomBitsTarget));
  EXPECT_EQ(results.operand(1)->operand(0), Find(*module, "state"));
  EXPECT_EQ(results.operand(0), Find(*module, "next"));
}

TEST(NativeRandomBitsTest, TypesAndAlgorithms) {
  EXPECT_TRUE(CallsFor(absl::StrReplaceAll(kBits, {{"u32", "u64"}})));
  EXPECT_TRUE(CallsFor(absl::StrReplaceAll(kBits, {{"u64[3]", "u64[2]"}})));
  EXPECT_TRUE(CallsFor(absl::StrReplaceAll(kBits, {{"rng_philox", "rng_default"}})));
  EXPECT_FALSE(CallsFor(
      absl::StrReplaceAll(kBits, {{"rng_philox", "rng_three_fry"}, {"u64[3]", "u64[2]"}})));
  EXPECT_FALSE(CallsFor(absl::StrReplaceAll(kBits, {{"u32", "u16"}})));
  // Too few for a call.
  EXPECT_FALSE(CallsFor(absl::StrReplaceAll(kBits, {{"8,16", "3,16"}})));
}

}  // namespace
}  // namespace tf_tpu_ext
