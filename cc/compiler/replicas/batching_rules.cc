#include "cc/compiler/replicas/batching_rules.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "cc/compiler/hlo/purity.h"
#include "cc/program/random_bits.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;
using xla::Shape;

// The batched form of an instruction with these operands, or nothing if there is none.
using Rule = std::optional<BatchedValues> (*)(BatchedComputation&, const HloInstruction&,
                                              const BatchedValues&);

std::vector<int64_t> Prepended(int64_t first, absl::Span<const int64_t> numbers) {
  std::vector<int64_t> longer = {first};
  longer.insert(longer.end(), numbers.begin(), numbers.end());
  return longer;
}

xla::Window WithFirstDimension(const xla::Window& window) {
  xla::Window longer;
  auto* first = longer.add_dimensions();
  first->set_size(1);
  first->set_stride(1);
  first->set_window_dilation(1);
  first->set_base_dilation(1);
  longer.mutable_dimensions()->MergeFrom(window.dimensions());
  return longer;
}

std::vector<HloInstruction*> AllBatched(BatchedComputation& out, const BatchedValues& operands) {
  std::vector<HloInstruction*> batched;
  for (const BatchedValue& operand : operands) batched.push_back(out.Batch(operand).instruction);
  return batched;
}

BatchedValues Batch(const HloInstruction& original, HloInstruction* batched) {
  return {{batched, true, original.shape()}};
}

BatchedValues Made(BatchedComputation& out, const HloInstruction& original,
                   std::unique_ptr<HloInstruction> batched) {
  return Batch(original, out.AddFor(original, std::move(batched)));
}

// The predicate of a select and the bounds of a clamp may be scalars. They stay scalars if all of
// them are mirrored. Otherwise all take the batch's shape, because the two can't be mixed.
std::optional<BatchedValues> BatchElementwise(BatchedComputation& out,
                                              const HloInstruction& instruction,
                                              const BatchedValues& operands) {
  const Shape shape = out.BatchedShape(instruction.shape());
  const auto is_scalar = [&](const BatchedValue& operand) {
    return operand.shape.dimensions().empty() && !instruction.shape().dimensions().empty();
  };
  const bool scalars_differ = absl::c_any_of(
      operands, [&](const BatchedValue& operand) { return is_scalar(operand) && operand.batched; });
  std::vector<HloInstruction*> arrays;
  for (const BatchedValue& operand : operands) {
    if (!is_scalar(operand)) {
      arrays.push_back(out.Batch(operand).instruction);
    } else if (!scalars_differ) {
      arrays.push_back(operand.instruction);
    } else {
      arrays.push_back(out.Add(HloInstruction::CreateBroadcast(
          xla::ShapeUtil::ChangeElementType(shape, operand.shape.element_type()),
          out.Batch(operand).instruction, {0})));
    }
  }
  return Batch(instruction, out.AddClone(instruction, shape, arrays));
}

// For instructions that treat the last dimensions as matrices or rows. The batch only adds more of
// them.
std::optional<BatchedValues> BatchRows(BatchedComputation& out, const HloInstruction& instruction,
                                       const BatchedValues& operands) {
  return Batch(instruction, out.AddClone(instruction, out.BatchedShape(instruction.shape()),
                                         AllBatched(out, operands)));
}

// A call for random bits takes any number of states.
std::optional<BatchedValues> BatchCustomCall(BatchedComputation& out,
                                             const HloInstruction& instruction,
                                             const BatchedValues& operands) {
  return instruction.IsCustomCall(kRandomBitsTarget) ? BatchRows(out, instruction, operands)
                                                     : BatchKernelCall(out, instruction, operands);
}

std::optional<BatchedValues> BatchReshape(BatchedComputation& out,
                                          const HloInstruction& instruction,
                                          const BatchedValues& operands) {
  return Made(out, instruction,
              HloInstruction::CreateReshape(out.BatchedShape(instruction.shape()),
                                            operands[0].instruction));
}

std::optional<BatchedValues> BatchBroadcast(BatchedComputation& out,
                                            const HloInstruction& instruction,
                                            const BatchedValues& operands) {
  return Made(out, instruction,
              HloInstruction::CreateBroadcast(out.BatchedShape(instruction.shape()),
                                              operands[0].instruction,
                                              ShiftedAndPrepended(instruction.dimensions())));
}

std::optional<BatchedValues> BatchTranspose(BatchedComputation& out,
                                            const HloInstruction& instruction,
                                            const BatchedValues& operands) {
  return Made(out, instruction,
              HloInstruction::CreateTranspose(out.BatchedShape(instruction.shape()),
                                              operands[0].instruction,
                                              ShiftedAndPrepended(instruction.dimensions())));
}

std::optional<BatchedValues> BatchConcatenate(BatchedComputation& out,
                                              const HloInstruction& instruction,
                                              const BatchedValues& operands) {
  return Made(out, instruction,
              HloInstruction::CreateConcatenate(out.BatchedShape(instruction.shape()),
                                                AllBatched(out, operands),
                                                instruction.concatenate_dimension() + 1));
}

std::optional<BatchedValues> BatchReverse(BatchedComputation& out,
                                          const HloInstruction& instruction,
                                          const BatchedValues& operands) {
  return Made(
      out, instruction,
      HloInstruction::CreateReverse(out.BatchedShape(instruction.shape()), operands[0].instruction,
                                    ShiftedByOne(instruction.dimensions())));
}

std::optional<BatchedValues> BatchSlice(BatchedComputation& out, const HloInstruction& instruction,
                                        const BatchedValues& operands) {
  return Made(
      out, instruction,
      HloInstruction::CreateSlice(out.BatchedShape(instruction.shape()), operands[0].instruction,
                                  Prepended(0, instruction.slice_starts()),
                                  Prepended(out.batch_size(), instruction.slice_limits()),
                                  Prepended(1, instruction.slice_strides())));
}

std::optional<BatchedValues> BatchPad(BatchedComputation& out, const HloInstruction& instruction,
                                      const BatchedValues& operands) {
  // The whole batch is padded with the same number.
  if (operands[1].batched) return std::nullopt;
  xla::PaddingConfig padding;
  padding.add_dimensions();
  padding.mutable_dimensions()->MergeFrom(instruction.padding_config().dimensions());
  return Made(out, instruction,
              HloInstruction::CreatePad(out.BatchedShape(instruction.shape()),
                                        operands[0].instruction, operands[1].instruction, padding));
}

// The position at which the arrays, which are the first operands, are sliced. Nothing if it differs
// between replicas, because there is only one position for the whole batch.
std::optional<std::vector<HloInstruction*>> StartIndices(BatchedComputation& out,
                                                         const BatchedValues& operands,
                                                         size_t arrays) {
  const size_t rank = operands[0].shape.dimensions().size();
  if (operands.size() != arrays + rank || rank == 0) return std::nullopt;
  std::vector<HloInstruction*> starts = {out.Constant(operands[arrays].shape.element_type(), 0)};
  for (size_t i = arrays; i < operands.size(); ++i) {
    if (operands[i].batched || !operands[i].shape.dimensions().empty()) return std::nullopt;
    starts.push_back(operands[i].instruction);
  }
  return starts;
}

std::optional<BatchedValues> BatchDynamicSlice(BatchedComputation& out,
                                               const HloInstruction& instruction,
                                               const BatchedValues& operands) {
  const auto starts = StartIndices(out, operands, /*arrays=*/1);
  if (!starts.has_value()) return std::nullopt;
  return Made(out, instruction,
              HloInstruction::CreateDynamicSlice(
                  out.BatchedShape(instruction.shape()), operands[0].instruction, *starts,
                  Prepended(out.batch_size(), instruction.dynamic_slice_sizes())));
}

std::optional<BatchedValues> BatchDynamicUpdateSlice(BatchedComputation& out,
                                                     const HloInstruction& instruction,
                                                     const BatchedValues& operands) {
  const auto starts = StartIndices(out, operands, /*arrays=*/2);
  if (!starts.has_value()) return std::nullopt;
  return Made(out, instruction,
              HloInstruction::CreateDynamicUpdateSlice(
                  out.BatchedShape(instruction.shape()), out.Batch(operands[0]).instruction,
                  out.Batch(operands[1]).instruction, *starts));
}

std::optional<BatchedValues> BatchSelectAndScatter(BatchedComputation& out,
                                                   const HloInstruction& instruction,
                                                   const BatchedValues& operands) {
  // The whole batch starts with the same number.
  if (operands[2].batched) return std::nullopt;
  return Made(out, instruction,
              HloInstruction::CreateSelectAndScatter(
                  out.BatchedShape(instruction.shape()), out.Batch(operands[0]).instruction,
                  out.Clone(instruction.select()), WithFirstDimension(instruction.window()),
                  out.Batch(operands[1]).instruction, operands[2].instruction,
                  out.Clone(instruction.scatter())));
}

std::optional<BatchedValues> BatchGather(BatchedComputation& out, const HloInstruction& instruction,
                                         const BatchedValues& operands) {
  const bool tables = operands[0].batched, indices = operands[1].batched;
  xla::GatherDimensionNumbers numbers = instruction.gather_dimension_numbers();
  if (!numbers.operand_batching_dims().empty()) return std::nullopt;
  std::vector<int64_t> slice_sizes(instruction.gather_slice_sizes().begin(),
                                   instruction.gather_slice_sizes().end());
  // If both tables and indices differ, each replica looks into its own table: the batch is a
  // batching dimension, and a slice takes one element of it. If the indices are the same for all, a
  // slice takes elements from every table.
  if (tables) {
    ShiftByOne(numbers.mutable_collapsed_slice_dims());
    ShiftByOne(numbers.mutable_start_index_map());
    slice_sizes = Prepended(indices ? 1 : out.batch_size(), slice_sizes);
  }
  if (indices) {
    numbers.set_index_vector_dim(numbers.index_vector_dim() + 1);
    ShiftByOne(numbers.mutable_offset_dims());
    if (tables) {
      numbers.add_operand_batching_dims(0);
      numbers.add_start_indices_batching_dims(0);
    }
  } else {
    ShiftAndPrepend(numbers.mutable_offset_dims());
  }
  // Indices that are sorted within each replica are not sorted across replicas.
  return Made(out, instruction,
              HloInstruction::CreateGather(out.BatchedShape(instruction.shape()),
                                           operands[0].instruction, operands[1].instruction,
                                           numbers, slice_sizes, /*indices_are_sorted=*/false));
}

// The shape of an instruction all of whose arrays are batches.
Shape AllBatchedShape(const BatchedComputation& out, const Shape& shape) {
  if (!shape.IsTuple()) return out.BatchedShape(shape);
  std::vector<Shape> elements;
  for (const Shape& element : shape.tuple_shapes()) elements.push_back(out.BatchedShape(element));
  return xla::ShapeUtil::MakeTupleShape(elements);
}

// The arrays of an instruction that may produce several. All of them are batches.
BatchedValues SeveralMade(BatchedComputation& out, const HloInstruction& original,
                          std::unique_ptr<HloInstruction> batched) {
  HloInstruction* made = out.AddFor(original, std::move(batched));
  if (!original.shape().IsTuple()) return Batch(original, made);
  BatchedValues like;
  for (const Shape& shape : original.shape().tuple_shapes()) like.push_back({nullptr, true, shape});
  return out.Elements(made, like);
}

// The arrays of a reduction as batches, and its initial values. Nothing if these differ between
// replicas.
struct ReductionOperands {
  std::vector<HloInstruction*> arrays, initial_values;
};
std::optional<ReductionOperands> OperandsOfReduction(BatchedComputation& out,
                                                     const BatchedValues& operands) {
  ReductionOperands divided;
  const size_t arrays = operands.size() / 2;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i < arrays) {
      divided.arrays.push_back(out.Batch(operands[i]).instruction);
    } else if (operands[i].batched) {
      return std::nullopt;
    } else {
      divided.initial_values.push_back(operands[i].instruction);
    }
  }
  return divided;
}

std::optional<BatchedValues> BatchReduce(BatchedComputation& out, const HloInstruction& instruction,
                                         const BatchedValues& operands) {
  const std::optional<ReductionOperands> divided = OperandsOfReduction(out, operands);
  if (!divided.has_value()) return std::nullopt;
  return SeveralMade(
      out, instruction,
      HloInstruction::CreateReduce(AllBatchedShape(out, instruction.shape()), divided->arrays,
                                   divided->initial_values, ShiftedByOne(instruction.dimensions()),
                                   out.Clone(instruction.to_apply())));
}

std::optional<BatchedValues> BatchReduceWindow(BatchedComputation& out,
                                               const HloInstruction& instruction,
                                               const BatchedValues& operands) {
  const std::optional<ReductionOperands> divided = OperandsOfReduction(out, operands);
  if (!divided.has_value()) return std::nullopt;
  return SeveralMade(out, instruction,
                     HloInstruction::CreateReduceWindow(AllBatchedShape(out, instruction.shape()),
                                                        divided->arrays, divided->initial_values,
                                                        WithFirstDimension(instruction.window()),
                                                        out.Clone(instruction.to_apply())));
}

std::optional<BatchedValues> BatchSort(BatchedComputation& out, const HloInstruction& instruction,
                                       const BatchedValues& operands) {
  const auto* sort = xla::Cast<xla::HloSortInstruction>(&instruction);
  return SeveralMade(
      out, instruction,
      HloInstruction::CreateSort(AllBatchedShape(out, instruction.shape()),
                                 sort->sort_dimension() + 1, AllBatched(out, operands),
                                 out.Clone(instruction.to_apply()), sort->is_stable()));
}

Rule RuleOf(const HloInstruction& instruction) {
  static const auto* const rules = new absl::flat_hash_map<HloOpcode, Rule>{
      {HloOpcode::kBitcastConvert, BatchRows},
      {HloOpcode::kBroadcast, BatchBroadcast},
      {HloOpcode::kCholesky, BatchRows},
      {HloOpcode::kConcatenate, BatchConcatenate},
      {HloOpcode::kConvolution, BatchConvolution},
      {HloOpcode::kCustomCall, BatchCustomCall},
      {HloOpcode::kDot, BatchDot},
      {HloOpcode::kDynamicSlice, BatchDynamicSlice},
      {HloOpcode::kDynamicUpdateSlice, BatchDynamicUpdateSlice},
      {HloOpcode::kFft, BatchRows},
      {HloOpcode::kGather, BatchGather},
      {HloOpcode::kPad, BatchPad},
      {HloOpcode::kReduce, BatchReduce},
      {HloOpcode::kReduceWindow, BatchReduceWindow},
      {HloOpcode::kReshape, BatchReshape},
      {HloOpcode::kReverse, BatchReverse},
      {HloOpcode::kSelectAndScatter, BatchSelectAndScatter},
      {HloOpcode::kSlice, BatchSlice},
      {HloOpcode::kSort, BatchSort},
      {HloOpcode::kTranspose, BatchTranspose},
      {HloOpcode::kTriangularSolve, BatchRows},
  };
  if (const auto found = rules->find(instruction.opcode()); found != rules->end()) {
    return found->second;
  }
  // A map's computation is specific to its dimensions, and random numbers are generated for a
  // shape.
  const bool elementwise = instruction.IsElementwise() && instruction.opcode() != HloOpcode::kMap &&
                           PurityOf(instruction) == Purity::kPure;
  return elementwise ? BatchElementwise : nullptr;
}

}  // namespace

std::vector<int64_t> ShiftedByOne(absl::Span<const int64_t> numbers) {
  std::vector<int64_t> shifted(numbers.begin(), numbers.end());
  ShiftByOne(&shifted);
  return shifted;
}

std::vector<int64_t> ShiftedAndPrepended(absl::Span<const int64_t> numbers) {
  return Prepended(0, ShiftedByOne(numbers));
}

std::optional<BatchedValues> BatchInstruction(const HloInstruction& instruction,
                                              const BatchedValues& operands,
                                              BatchedComputation* out) {
  const Rule rule = RuleOf(instruction);
  if (rule == nullptr || operands.empty()) return std::nullopt;
  return rule(*out, instruction, operands);
}

}  // namespace tf_tpu_ext
