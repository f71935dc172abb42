#include "cc/compiler/hlo/static_results.h"

#include <cstdint>

#include "absl/status/status.h"
#include "cc/compiler/hlo/module.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_sharding.h"
#include "xla/literal_util.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputation;
using xla::HloInstruction;

HloInstruction* SizeOf(HloInstruction* array, int dimension) {
  return array->parent()->AddInstruction(HloInstruction::CreateGetDimensionSize(
      xla::ShapeUtil::MakeShape(xla::S32, {}), array, dimension));
}

// The array with that dimension at its bound, padding included.
HloInstruction* AtBound(HloInstruction* array, int dimension) {
  xla::Shape padded = array->shape();
  padded.set_dynamic_dimension(dimension, false);
  HloComputation* computation = array->parent();
  HloInstruction* bound = computation->AddInstruction(HloInstruction::CreateConstant(
      xla::LiteralUtil::CreateR0<int32_t>(padded.dimensions(dimension))));
  HloInstruction* fixed = computation->AddInstruction(
      HloInstruction::CreateSetDimensionSize(padded, array, bound, dimension));
  if (array->has_sharding()) fixed->set_sharding(array->sharding());
  return fixed;
}

}  // namespace

absl::StatusOr<DynamicSizes> MakeResultsStatic(xla::HloModule* module) {
  if (!module->result_shape().is_dynamic()) return DynamicSizes();
  HloComputation* entry = module->entry_computation();
  HloInstruction* root = entry->root_instruction();
  std::vector<HloInstruction*> results(root->operands().begin(), root->operands().end());
  std::vector<xla::HloSharding> shardings;
  if (root->has_sharding()) shardings = root->sharding().tuple_elements();
  std::vector<HloInstruction*> sizes;
  DynamicSizes dynamic_sizes(static_cast<int>(results.size()));
  for (size_t i = 0; i < results.size(); ++i) {
    HloInstruction* dynamic = results[i];
    for (int d = 0; d < static_cast<int>(dynamic->shape().dimensions().size()); ++d) {
      if (!dynamic->shape().is_dynamic_dimension(d)) continue;
      dynamic_sizes[ResultNumber(static_cast<int>(i))].emplace_back(
          d, static_cast<int>(results.size() + sizes.size()));
      sizes.push_back(SizeOf(dynamic, d));
      // A size is a scalar, which can't be split: it is where its array is, if that is one core.
      if (!shardings.empty()) {
        shardings.push_back(shardings[i].IsTileMaximal() ? shardings[i]
                                                         : xla::HloSharding::Replicate());
      }
      results[i] = AtBound(results[i], d);
    }
  }
  results.insert(results.end(), sizes.begin(), sizes.end());
  HloInstruction* tuple = entry->AddInstruction(HloInstruction::CreateTuple(results));
  if (!shardings.empty()) {
    tuple->set_sharding(xla::HloSharding::Tuple(tuple->shape(), shardings));
  }
  entry->set_root_instruction(tuple, /*accept_different_shape=*/true);
  TF_RETURN_IF_ERROR(entry->RemoveInstruction(root));
  ResultChanged(module);
  return dynamic_sizes;
}

}  // namespace tf_tpu_ext
