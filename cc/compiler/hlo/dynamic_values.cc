#include "cc/compiler/hlo/dynamic_values.h"

#include <cstdint>

#include "xla/hlo/ir/hlo_computation.h"
#include "xla/literal_util.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {

using xla::HloComputation;
using xla::HloInstruction;

HloInstruction* SizeOf(HloInstruction* array, int dimension) {
  return array->parent()->AddInstruction(HloInstruction::CreateGetDimensionSize(
      xla::ShapeUtil::MakeShape(xla::S32, {}), array, dimension));
}

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

}  // namespace tf_tpu_ext
