#include "cc/compiler/hlo/sum_in_products.h"

#include <cstdint>

#include "absl/algorithm/container.h"
#include "cc/compiler/hlo/collective_patterns.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/tsl/platform/errors.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

// Whether the instruction sums a product over some of its batch dimensions, which come first in the
// result, and the product has no other use.
bool SumsBatchOfProducts(const HloInstruction& instruction) {
  if (instruction.opcode() != HloOpcode::kReduce || !AddsToZero(instruction)) return false;
  const HloInstruction& product = *instruction.operand(0);
  if (product.opcode() != HloOpcode::kDot || product.user_count() != 1) return false;
  const int64_t batch = product.dot_dimension_numbers().lhs_batch_dimensions_size();
  return absl::c_all_of(instruction.dimensions(), [&](int64_t d) { return d < batch; });
}

// The dimension numbers of a product that also sums over the batch dimensions that `sum` reduces.
xla::DotDimensionNumbers WithSum(const HloInstruction& product, const HloInstruction& sum) {
  const xla::DotDimensionNumbers& given = product.dot_dimension_numbers();
  xla::DotDimensionNumbers numbers = given;
  numbers.clear_lhs_batch_dimensions();
  numbers.clear_rhs_batch_dimensions();
  for (int i = 0; i < given.lhs_batch_dimensions_size(); ++i) {
    const int64_t lhs = given.lhs_batch_dimensions(i);
    const int64_t rhs = given.rhs_batch_dimensions(i);
    if (absl::c_linear_search(sum.dimensions(), i)) {
      numbers.add_lhs_contracting_dimensions(lhs);
      numbers.add_rhs_contracting_dimensions(rhs);
    } else {
      numbers.add_lhs_batch_dimensions(lhs);
      numbers.add_rhs_batch_dimensions(rhs);
    }
  }
  return numbers;
}

}  // namespace

absl::Status SumInProducts(xla::HloModule* module) {
  for (HloComputation* computation : module->computations()) {
    for (HloInstruction* sum : computation->MakeInstructionPostOrder()) {
      if (!SumsBatchOfProducts(*sum)) continue;
      HloInstruction* const product = sum->mutable_operand(0);
      HloInstruction* const one = computation->AddInstruction(HloInstruction::CreateDot(
          sum->shape(), product->mutable_operand(0), product->mutable_operand(1),
          WithSum(*product, *sum), product->precision_config()));
      product->SetupDerivedInstruction(one);
      if (sum->has_sharding()) {
        one->set_sharding(sum->sharding());
      } else {
        one->clear_sharding();
      }
      TF_RETURN_IF_ERROR(computation->ReplaceInstruction(sum, one));
    }
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
