#include "cc/compiler/hlo/skip_computation.h"

#include <utility>
#include <vector>

#include "cc/compiler/hlo/module.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_sharding.h"
#include "xla/literal_util.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {

using xla::HloInstruction;

std::unique_ptr<xla::HloModule> WithoutComputation(const std::map<int, int>& parameter_of_result,
                                                   const xla::HloModule& module) {
  const xla::HloComputation& entry = *module.entry_computation();
  const HloInstruction* const root = entry.root_instruction();
  xla::HloComputation::Builder builder(entry.name());
  std::vector<HloInstruction*> parameters, results;
  for (const HloInstruction* parameter : entry.parameter_instructions()) {
    parameters.push_back(builder.AddInstruction(HloInstruction::CreateParameter(
        parameter->parameter_number(), parameter->shape(), parameter->name())));
    if (parameter->has_sharding()) parameters.back()->set_sharding(parameter->sharding());
  }
  for (const xla::Shape& shape : root->shape().tuple_shapes()) {
    const auto kept = parameter_of_result.find(static_cast<int>(results.size()));
    if (kept != parameter_of_result.end() &&
        xla::ShapeUtil::Compatible(parameters[kept->second]->shape(), shape)) {
      results.push_back(parameters[kept->second]);
      continue;
    }
    HloInstruction* const zero = builder.AddInstruction(
        HloInstruction::CreateConstant(xla::LiteralUtil::Zero(shape.element_type())));
    HloInstruction* const zeros =
        builder.AddInstruction(HloInstruction::CreateBroadcast(shape, zero, {}));
    if (root->has_sharding()) {
      zeros->set_sharding(root->sharding().tuple_elements()[results.size()]);
    }
    results.push_back(zeros);
  }
  HloInstruction* const tuple = builder.AddInstruction(HloInstruction::CreateTuple(results));
  if (root->has_sharding()) tuple->set_sharding(root->sharding());
  std::unique_ptr<xla::HloModule> made = EmptyModuleLike(module);
  AddEntry(builder.Build(), made.get());
  return made;
}

}  // namespace tf_tpu_ext
