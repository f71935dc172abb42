#include "cc/compiler/hlo/static_results.h"

#include <vector>

#include "absl/status/status.h"
#include "cc/compiler/hlo/dynamic_values.h"
#include "cc/compiler/hlo/module.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_sharding.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {

using xla::HloComputation;
using xla::HloInstruction;

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
      // A size is a scalar, which can't be split. It goes to the core of its array, if that is a
      // single core.
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
