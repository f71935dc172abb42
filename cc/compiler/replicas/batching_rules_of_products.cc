// Products, and sums over a batch: the rows or samples of all replicas become one larger batch.
#include <utility>

#include "absl/status/statusor.h"
#include "cc/compiler/replicas/batching_rules.h"
#include "cc/ops/window_ops.h"
#include "cc/program/kernel_call.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/literal_util.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;
using xla::Shape;

// The shape with all samples of all replicas as one batch.
Shape ShapeOfAllSamples(const Shape& shape, int batch_size) {
  Shape samples = shape;
  samples.set_dimensions(0, batch_size * shape.dimensions(0));
  return samples;
}

// The op that a custom call computes with one of TensorFlow's kernels, or null for other calls.
const WindowOp* WindowOpOf(const HloInstruction& call) {
  if (!call.IsCustomCall(kKernelTarget)) return nullptr;
  const absl::StatusOr<KernelCall> kernel = DecodeKernelCall(call.raw_backend_config_string());
  if (!kernel.ok() || !call.shape().IsArray()) return nullptr;
  const auto found = WindowOps().find(kernel->op);
  return found == WindowOps().end() ? nullptr : &found->second;
}

// The kernel's call with the samples of all replicas as one batch.
HloInstruction* CallOfAllSamples(BatchedComputation& out, const HloInstruction& call,
                                 const WindowOp& op, const Shape& result,
                                 const BatchedValues& operands) {
  std::vector<HloInstruction*> arrays;
  for (int i = 0; i < static_cast<int>(operands.size()); ++i) {
    if (i == op.sizes) {
      const std::vector<int32_t> sizes(result.dimensions().begin(), result.dimensions().end());
      arrays.push_back(
          out.Add(HloInstruction::CreateConstant(xla::LiteralUtil::CreateR1<int32_t>(sizes))));
    } else if (op.HoldsBatch(i)) {
      arrays.push_back(out.Reshape(out.Batch(operands[i]),
                                   ShapeOfAllSamples(operands[i].shape, out.batch_size())));
    } else {
      arrays.push_back(operands[i].instruction);
    }
  }
  HloInstruction* made = out.AddClone(call, result, arrays);
  auto* custom_call = xla::Cast<xla::HloCustomCallInstruction>(made);
  // The call stores the layouts that it requires as shapes, which have to grow with the operands.
  if (custom_call->layout_constrained()) {
    std::vector<Shape> shapes = custom_call->operand_shapes_with_layout();
    for (size_t i = 0; i < shapes.size(); ++i) {
      for (size_t d = 0; d < shapes[i].dimensions().size(); ++d) {
        shapes[i].set_dimensions(d, arrays[i]->shape().dimensions(d));
      }
    }
    custom_call->set_operand_shapes_with_layout(std::move(shapes));
  }
  return made;
}

// Whether all operands that differ between replicas are batches of samples, not filters.
bool DifferInSamplesOnly(const WindowOp& op, const BatchedValues& operands) {
  for (int i = 0; i < static_cast<int>(operands.size()); ++i) {
    if (operands[i].batched && !op.HoldsBatch(i)) return false;
  }
  return true;
}

// A product of which only one side differs between replicas: its rows are those of all replicas.
// XLA puts the batch before or after the dimensions of the other side. From there it is moved to
// the front.
BatchedValue DotOfOneSide(BatchedComputation& out, const HloInstruction& dot,
                          const BatchedValue& lhs, const BatchedValue& rhs,
                          const xla::DotDimensionNumbers& numbers) {
  const auto& given = dot.dot_dimension_numbers();
  const int place = lhs.batched ? given.lhs_batch_dimensions_size()
                                : static_cast<int>(lhs.shape.dimensions().size()) -
                                      given.lhs_contracting_dimensions_size();
  const auto dimensions = dot.shape().dimensions();
  std::vector<int64_t> sizes(dimensions.begin(), dimensions.end());
  sizes.insert(sizes.begin() + place, out.batch_size());
  HloInstruction* product = out.AddFor(
      dot,
      HloInstruction::CreateDot(xla::ShapeUtil::MakeShape(dot.shape().element_type(), sizes),
                                lhs.instruction, rhs.instruction, numbers, dot.precision_config()));
  if (place == 0) return {product, true, dot.shape()};
  std::vector<int64_t> order = {place};
  for (int d = 0; d < static_cast<int>(sizes.size()); ++d) {
    if (d != place) order.push_back(d);
  }
  return {out.Add(HloInstruction::CreateTranspose(out.BatchedShape(dot.shape()), product, order)),
          true, dot.shape()};
}

// The replicas become one more dimension to sum over, so their products are never computed.
BatchedValue SumOfDots(BatchedComputation& out, const HloInstruction& dot,
                       const BatchedValues& operands) {
  xla::DotDimensionNumbers numbers = dot.dot_dimension_numbers();
  ShiftByOne(numbers.mutable_lhs_batch_dimensions());
  ShiftByOne(numbers.mutable_rhs_batch_dimensions());
  ShiftAndPrepend(numbers.mutable_lhs_contracting_dimensions());
  ShiftAndPrepend(numbers.mutable_rhs_contracting_dimensions());
  return {out.AddFor(dot, HloInstruction::CreateDot(dot.shape(), operands[0].instruction,
                                                    operands[1].instruction, numbers,
                                                    dot.precision_config())),
          false, dot.shape()};
}

BatchedValue SumOfReductions(BatchedComputation& out, const HloInstruction& reduce,
                             const BatchedValues& operands) {
  return {out.AddFor(reduce, HloInstruction::CreateReduce(reduce.shape(), operands[0].instruction,
                                                          operands[1].instruction,
                                                          ShiftedAndPrepended(reduce.dimensions()),
                                                          out.Clone(reduce.to_apply()))),
          false, reduce.shape()};
}

// One scatter of all replicas' updates into one table, instead of a table of that size for each
// replica.
BatchedValue SumOfScatters(BatchedComputation& out, const HloInstruction& scatter,
                           const BatchedValues& operands) {
  xla::ScatterDimensionNumbers numbers = scatter.scatter_dimension_numbers();
  ShiftByOne(numbers.mutable_update_window_dims());
  numbers.set_index_vector_dim(numbers.index_vector_dim() + 1);
  return {out.AddFor(scatter,
                     HloInstruction::CreateScatter(
                         scatter.shape(), operands[0].instruction,
                         out.Batch(operands[1]).instruction, out.Batch(operands[2]).instruction,
                         out.Clone(scatter.to_apply()), numbers, /*indices_are_sorted=*/false,
                         /*unique_indices=*/false)),
          false, scatter.shape()};
}

}  // namespace

std::optional<BatchedValues> BatchDot(BatchedComputation& out, const HloInstruction& dot,
                                      const BatchedValues& operands) {
  const BatchedValue& lhs = operands[0];
  const BatchedValue& rhs = operands[1];
  xla::DotDimensionNumbers numbers = dot.dot_dimension_numbers();
  if (lhs.batched) ShiftByOne(numbers.mutable_lhs_contracting_dimensions());
  if (rhs.batched) ShiftByOne(numbers.mutable_rhs_contracting_dimensions());
  if (!lhs.batched || !rhs.batched) {
    ShiftByOne(lhs.batched ? numbers.mutable_lhs_batch_dimensions()
                           : numbers.mutable_rhs_batch_dimensions());
    return BatchedValues{DotOfOneSide(out, dot, lhs, rhs, numbers)};
  }
  ShiftAndPrepend(numbers.mutable_lhs_batch_dimensions());
  ShiftAndPrepend(numbers.mutable_rhs_batch_dimensions());
  return BatchedValues{
      {out.AddFor(dot, HloInstruction::CreateDot(out.BatchedShape(dot.shape()), lhs.instruction,
                                                 rhs.instruction, numbers, dot.precision_config())),
       true, dot.shape()}};
}

std::optional<BatchedValues> BatchConvolution(BatchedComputation& out,
                                              const HloInstruction& convolution,
                                              const BatchedValues& operands) {
  const auto& numbers = convolution.convolution_dimension_numbers();
  // Only if the batch comes first do the samples of all replicas form one batch without a copy. Nor
  // can they form one if each replica has its own filters, or filters apply to parts of the batch.
  if (operands[1].batched || numbers.input_batch_dimension() != 0 ||
      numbers.output_batch_dimension() != 0 || convolution.batch_group_count() > 1) {
    return std::nullopt;
  }
  HloInstruction* samples =
      out.Reshape(operands[0], ShapeOfAllSamples(operands[0].shape, out.batch_size()));
  HloInstruction* result =
      out.AddClone(convolution, ShapeOfAllSamples(convolution.shape(), out.batch_size()),
                   {samples, operands[1].instruction});
  return BatchedValues{
      {out.Add(HloInstruction::CreateReshape(out.BatchedShape(convolution.shape()), result)), true,
       convolution.shape()}};
}

std::optional<BatchedValues> BatchKernelCall(BatchedComputation& out, const HloInstruction& call,
                                             const BatchedValues& operands) {
  const WindowOp* op = WindowOpOf(call);
  if (op == nullptr || !op->MakesBatch() || !DifferInSamplesOnly(*op, operands)) {
    return std::nullopt;
  }
  HloInstruction* result =
      CallOfAllSamples(out, call, *op, ShapeOfAllSamples(call.shape(), out.batch_size()), operands);
  return BatchedValues{
      {out.Add(HloInstruction::CreateReshape(out.BatchedShape(call.shape()), result)), true,
       call.shape()}};
}

std::optional<BatchedValue> SumOfKernelCalls(BatchedComputation& out, const HloInstruction& call,
                                             const BatchedValues& operands) {
  const WindowOp* op = WindowOpOf(call);
  if (op == nullptr || op->MakesBatch() || !DifferInSamplesOnly(*op, operands)) {
    return std::nullopt;
  }
  return BatchedValue{CallOfAllSamples(out, call, *op, call.shape(), operands), false,
                      call.shape()};
}

std::optional<BatchedValue> SumOfReplicas(const HloInstruction& summed,
                                          const BatchedValues& operands, bool from_zero,
                                          BatchedComputation* out) {
  switch (summed.opcode()) {
    case HloOpcode::kDot:
      if (!operands[0].batched || !operands[1].batched) return std::nullopt;
      return SumOfDots(*out, summed, operands);
    case HloOpcode::kReduce:
      if (operands.size() != 2 || operands[1].batched || !from_zero) return std::nullopt;
      return SumOfReductions(*out, summed, operands);
    case HloOpcode::kScatter:
      if (operands.size() != 3 || operands[0].batched || !from_zero ||
          !summed.scatter_dimension_numbers().input_batching_dims().empty()) {
        return std::nullopt;
      }
      return SumOfScatters(*out, summed, operands);
    case HloOpcode::kCustomCall:
      return SumOfKernelCalls(*out, summed, operands);
    default:
      return std::nullopt;
  }
}

}  // namespace tf_tpu_ext
