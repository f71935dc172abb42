#include "cc/compiler/hlo/native_random_bits.h"

#include <cstdint>

#include "cc/program/random_bits.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/errors.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

// For fewer numbers, XLA's inline code takes less time than a call.
constexpr int64_t kFewestNumbers = 64;

bool IsMadeNatively(xla::PrimitiveType type) {
  return type == xla::U32 || type == xla::S32 || type == xla::U64 || type == xla::S64;
}

// Whether native code generates such bits of such a state.
bool FitsNativeBits(const xla::Shape& state, const xla::Shape& bits) {
  return state.IsArray() && state.element_type() == xla::U64 && state.dimensions().size() == 1 &&
         (state.dimensions(0) == 2 || state.dimensions(0) == 3) && bits.IsArray() &&
         bits.is_static() && IsMadeNatively(bits.element_type());
}

// Whether these are the bits, rather than the new state, of a generator for which XLA:CPU uses
// Philox.
bool AreBits(const HloInstruction& instruction) {
  if (instruction.opcode() != HloOpcode::kGetTupleElement || instruction.tuple_index() != 1) {
    return false;
  }
  const auto* generator = xla::DynCast<xla::HloRngBitGeneratorInstruction>(instruction.operand(0));
  if (generator == nullptr) return false;
  const xla::RandomAlgorithm algorithm = generator->algorithm();
  return (algorithm == xla::RNG_PHILOX || algorithm == xla::RNG_DEFAULT) &&
         FitsNativeBits(generator->operand(0)->shape(), instruction.shape()) &&
         xla::ShapeUtil::ElementsIn(instruction.shape()) >= kFewestNumbers;
}

}  // namespace

absl::Status MakeRandomBitsNatively(xla::HloModule* module) {
  for (HloComputation* computation : module->computations()) {
    for (HloInstruction* bits : computation->MakeInstructionPostOrder()) {
      if (!AreBits(*bits)) continue;
      HloInstruction* const generator = bits->mutable_operand(0);
      HloInstruction* const call = computation->AddInstruction(HloInstruction::CreateCustomCall(
          bits->shape(), {generator->mutable_operand(0)}, kRandomBitsTarget, /*opaque=*/"",
          xla::API_VERSION_TYPED_FFI));
      call->set_metadata(generator->metadata());
      // The generator stays if its new state is used.
      TF_RETURN_IF_ERROR(computation->ReplaceInstruction(bits, call));
    }
  }
  return absl::OkStatus();
}

bool IsNativeRandomBits(const HloInstruction& instruction) {
  return instruction.IsCustomCall(kRandomBitsTarget) && instruction.operand_count() == 1 &&
         FitsNativeBits(instruction.operand(0)->shape(), instruction.shape());
}

}  // namespace tf_tpu_ext
