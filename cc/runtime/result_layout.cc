#include "cc/runtime/result_layout.h"

#include <utility>

#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_input_output_alias_config.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/service/buffer_assignment.h"
#include "xla/service/cpu/cpu_executable.h"
#include "xla/shape.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {

absl::StatusOr<ResultLayout> ResultLayout::Of(const CompiledProgram& compiled) {
  const auto& executable = static_cast<const xla::cpu::CpuExecutable&>(*compiled.executable);
  const xla::BufferAssignment& assignment = executable.buffer_assignment();
  const xla::HloInstruction* root = executable.module().entry_computation()->root_instruction();
  ResultLayout layout;
  executable.module().input_output_alias_config().ForEachAlias(
      [&](const xla::ShapeIndex& /*result*/, const xla::HloInputOutputAliasConfig::Alias& alias) {
        layout.overwritten_parameters.insert(
            ParameterNumber(static_cast<int>(alias.parameter_number)));
      });
  ByNumber<ResultNumber, const CompiledProgram::Output*> computed;
  for (const CompiledProgram::Output& output : compiled.outputs) {
    if (output.constant != nullptr) {
      layout.result_of_output.Add(std::nullopt);
    } else {
      layout.result_of_output.Add(computed.Add(&output));
    }
  }
  layout.result_of_allocation.resize(assignment.Allocations().size());
  const auto num_results = static_cast<int>(root->shape().tuple_shapes().size());
  for (ResultNumber number : NumbersBelow<ResultNumber>(num_results)) {
    TF_ASSIGN_OR_RETURN(const xla::BufferAllocation::Slice slice,
                        assignment.GetUniqueSlice(root, {number.value()}));
    const xla::BufferAllocation& allocation = assignment.GetAllocation(slice.index());
    Result result;
    // The sizes of dynamic outputs follow the outputs.
    result.dtype = computed.Has(number) ? computed[number]->dtype : tensorflow::DT_INT32;
    for (int64_t size : root->shape().tuple_shapes(number.value()).dimensions()) {
      result.shape.AddDim(size);
    }
    result.allocation = slice.index();
    result.offset = slice.offset();
    if (slice.offset() == 0 && slice.size() == allocation.size()) {
      if (allocation.is_entry_computation_parameter()) {
        const ParameterNumber parameter(static_cast<int>(allocation.parameter_number()));
        // Other memory belongs to the caller and must not become a result.
        if (layout.overwritten_parameters.count(parameter) > 0) {
          result.argument = compiled.parameter_arguments[parameter];
        }
      } else if (!allocation.is_constant()) {
        std::optional<ResultNumber>& owner = layout.result_of_allocation[slice.index()];
        if (!owner.has_value()) owner = number;
      }
    }
    layout.results.Add(std::move(result));
  }
  return layout;
}

}  // namespace tf_tpu_ext
