#include "cc/compiler/hlo/matmul_precision.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "cc/program/kernel_call.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/literal_util.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;
using xla::PrecisionConfig;

// The format of bfloat16.
constexpr int kExponentBits = 8;
constexpr int kMantissaBits = 7;

bool IsFloat(const HloInstruction* operand) { return operand->shape().element_type() == xla::F32; }

bool IsProduct(const HloInstruction& instruction) {
  return (instruction.opcode() == HloOpcode::kDot ||
          instruction.opcode() == HloOpcode::kConvolution) &&
         (IsFloat(instruction.operand(0)) || IsFloat(instruction.operand(1)));
}

PrecisionConfig::Precision PrecisionOf(const HloInstruction& product, int operand) {
  const PrecisionConfig& config = product.precision_config();
  switch (config.algorithm()) {
    case PrecisionConfig::ALG_UNSET:
      return operand < config.operand_precision_size()
                 ? static_cast<PrecisionConfig::Precision>(config.operand_precision(operand))
                 : PrecisionConfig::DEFAULT;
    case PrecisionConfig::ALG_DOT_BF16_BF16_BF16:
    case PrecisionConfig::ALG_DOT_BF16_BF16_F32:
      return PrecisionConfig::DEFAULT;
    case PrecisionConfig::ALG_DOT_BF16_BF16_F32_X3:
      return PrecisionConfig::HIGH;
    default:
      return PrecisionConfig::HIGHEST;
  }
}

// The values of one computation, rounded to bfloat16.
class Rounding {
 public:
  HloInstruction* Rounded(HloInstruction* value) {
    HloInstruction*& made = rounded_[value];
    if (made == nullptr) made = Round(value);
    return made;
  }

  // The remainder of the value after `Rounded`, itself rounded. Zero where the value is not finite.
  HloInstruction* Rest(HloInstruction* value) {
    HloInstruction* const rounded = Rounded(value);
    HloInstruction*& made = rests_[value];
    if (made != nullptr) return made;
    const xla::Shape& shape = value->shape();
    HloInstruction* rest =
        Add(HloInstruction::CreateBinary(shape, HloOpcode::kSubtract, value, rounded), value);
    HloInstruction* finite =
        Add(HloInstruction::CreateUnary(xla::ShapeUtil::ChangeElementType(shape, xla::PRED),
                                        HloOpcode::kIsFinite, rounded),
            value);
    HloInstruction* zero = value->parent()->AddInstruction(
        HloInstruction::CreateConstant(xla::LiteralUtil::Zero(xla::F32)));
    HloInstruction* zeros = Add(HloInstruction::CreateBroadcast(shape, zero, {}), value);
    rest =
        Add(HloInstruction::CreateTernary(shape, HloOpcode::kSelect, finite, rest, zeros), value);
    return made = Round(rest);
  }

 private:
  static HloInstruction* Add(std::unique_ptr<HloInstruction> made, HloInstruction* like) {
    HloInstruction* const added = like->parent()->AddInstruction(std::move(made));
    if (like->has_sharding()) added->set_sharding(like->sharding());
    added->set_metadata(like->metadata());
    return added;
  }

  static HloInstruction* Round(HloInstruction* value) {
    return Add(
        HloInstruction::CreateReducePrecision(value->shape(), value, kExponentBits, kMantissaBits),
        value);
  }

  absl::flat_hash_map<HloInstruction*, HloInstruction*> rounded_, rests_;
};

// The terms that replace an operand, largest first.
std::vector<HloInstruction*> TermsOf(HloInstruction* product, int number, Rounding* rounding) {
  HloInstruction* const operand = product->mutable_operand(number);
  const PrecisionConfig::Precision precision = PrecisionOf(*product, number);
  if (!IsFloat(operand) || precision == PrecisionConfig::HIGHEST) return {operand};
  if (precision == PrecisionConfig::DEFAULT) return {rounding->Rounded(operand)};
  return {rounding->Rounded(operand), rounding->Rest(operand)};
}

absl::Status RoundProduct(HloInstruction* product, Rounding* rounding) {
  const std::vector<HloInstruction*> left = TermsOf(product, 0, rounding);
  const std::vector<HloInstruction*> right = TermsOf(product, 1, rounding);
  HloInstruction* sum = nullptr;
  HloComputation* const computation = product->parent();
  const auto add = [&](std::unique_ptr<HloInstruction> made) {
    HloInstruction* const added = computation->AddInstruction(std::move(made));
    product->SetupDerivedInstruction(added);
    return added;
  };
  // Adds the smallest terms first. The product of the two remainders is left out, as on a TPU.
  for (size_t i = left.size(); i-- > 0;) {
    for (size_t j = right.size(); j-- > 0;) {
      if (i == 1 && j == 1) continue;
      HloInstruction* const term =
          add(product->CloneWithNewOperands(product->shape(), {left[i], right[j]}));
      // The algorithm has been applied here.
      term->mutable_precision_config()->set_algorithm(PrecisionConfig::ALG_UNSET);
      sum = sum == nullptr
                ? term
                : add(HloInstruction::CreateBinary(product->shape(), HloOpcode::kAdd, sum, term));
    }
  }
  return computation->ReplaceInstruction(product, sum);
}

// Whether the instruction calls a convolution, rather than a pool, which multiplies nothing.
absl::StatusOr<bool> CallsConvolution(const HloInstruction& instruction) {
  if (instruction.opcode() != HloOpcode::kCustomCall ||
      instruction.custom_call_target() != kKernelTarget) {
    return false;
  }
  TF_ASSIGN_OR_RETURN(const KernelCall call,
                      DecodeKernelCall(instruction.raw_backend_config_string()));
  return absl::StrContains(call.op, "Conv");
}

}  // namespace

absl::Status RoundProducts(bool kernels_too, xla::HloModule* module) {
  for (HloComputation* computation : module->computations()) {
    Rounding rounding;
    for (HloInstruction* instruction : computation->MakeInstructionPostOrder()) {
      if (IsProduct(*instruction)) {
        TF_RETURN_IF_ERROR(RoundProduct(instruction, &rounding));
        continue;
      }
      TF_ASSIGN_OR_RETURN(const bool convolution, CallsConvolution(*instruction));
      if (!convolution || !kernels_too) continue;
      for (int i = 0; i < instruction->operand_count(); ++i) {
        HloInstruction* const operand = instruction->mutable_operand(i);
        if (!IsFloat(operand)) continue;
        TF_RETURN_IF_ERROR(instruction->ReplaceOperandWith(i, rounding.Rounded(operand)));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
