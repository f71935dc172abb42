#include "cc/compiler/replicas/batched_computation.h"

#include <numeric>
#include <utility>

#include "xla/hlo/ir/hlo_module.h"
#include "xla/literal_util.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {

using xla::HloComputation;
using xla::HloInstruction;
using xla::Shape;
using xla::ShapeUtil;

Shape BatchedComputation::BatchedShape(const Shape& shape) const {
  return ShapeUtil::PrependMajorDimension(batch_size_, shape);
}

Shape BatchedComputation::ShapeOf(const BatchedValue& value) const {
  return value.batched ? BatchedShape(value.shape) : value.shape;
}

HloInstruction* BatchedComputation::Add(std::unique_ptr<HloInstruction> instruction) {
  return builder_.AddInstruction(std::move(instruction));
}

HloInstruction* BatchedComputation::AddFor(const HloInstruction& original,
                                           std::unique_ptr<HloInstruction> instruction) {
  original.SetupDerivedInstruction(instruction.get());
  instruction->clear_sharding();
  return Add(std::move(instruction));
}

HloInstruction* BatchedComputation::AddClone(const HloInstruction& original, const Shape& shape,
                                             absl::Span<HloInstruction* const> operands) {
  return AddFor(original, original.CloneWithNewOperands(shape, operands, context_));
}

HloComputation* BatchedComputation::Clone(HloComputation* original) {
  return context_->module()->DeepCloneComputation(original, context_);
}

BatchedValue BatchedComputation::Batch(const BatchedValue& value) {
  if (value.batched) return value;
  std::vector<int64_t> dimensions(value.shape.dimensions().size());
  std::iota(dimensions.begin(), dimensions.end(), 1);
  return {Add(HloInstruction::CreateBroadcast(BatchedShape(value.shape), value.instruction,
                                              dimensions)),
          true, value.shape};
}

BatchedValue BatchedComputation::Element(const BatchedValue& value, int number) {
  if (!value.batched) return value;
  std::vector<int64_t> starts(1 + value.shape.dimensions().size(), 0);
  std::vector<int64_t> limits = {number + 1};
  const std::vector<int64_t> strides(starts.size(), 1);
  starts[0] = number;
  limits.insert(limits.end(), value.shape.dimensions().begin(), value.shape.dimensions().end());
  HloInstruction* slice =
      Add(HloInstruction::CreateSlice(ShapeUtil::PrependMajorDimension(1, value.shape),
                                      value.instruction, starts, limits, strides));
  return {Add(HloInstruction::CreateReshape(value.shape, slice)), false, value.shape};
}

BatchedValue BatchedComputation::Join(absl::Span<const BatchedValue> elements) {
  const Shape& shape = elements[0].shape;
  std::vector<HloInstruction*> rows;
  for (const BatchedValue& element : elements) {
    rows.push_back(Reshape(element, ShapeUtil::PrependMajorDimension(1, shape)));
  }
  return {Add(HloInstruction::CreateConcatenate(BatchedShape(shape), rows, /*dimension=*/0)), true,
          shape};
}

HloInstruction* BatchedComputation::Reshape(const BatchedValue& value, const Shape& shape) {
  return Add(HloInstruction::CreateReshape(shape, value.instruction));
}

HloInstruction* BatchedComputation::Constant(xla::PrimitiveType type, int64_t value) {
  return Add(HloInstruction::CreateConstant(xla::LiteralUtil::CreateR0(type, value)));
}

HloInstruction* BatchedComputation::Tuple(const Shape& shape,
                                          absl::Span<const BatchedValue> arrays) {
  if (!shape.IsTuple()) return arrays[0].instruction;
  std::vector<HloInstruction*> elements;
  size_t next = 0;
  for (const Shape& element : shape.tuple_shapes()) {
    const size_t count = ShapeUtil::GetLeafCount(element);
    elements.push_back(Tuple(element, arrays.subspan(next, count)));
    next += count;
  }
  return Add(HloInstruction::CreateTuple(elements));
}

BatchedValues BatchedComputation::Arrays(HloInstruction* instruction) {
  const Shape& shape = instruction->shape();
  if (!shape.IsTuple()) return {{instruction, false, shape}};
  BatchedValues arrays;
  for (size_t i = 0; i < shape.tuple_shapes().size(); ++i) {
    for (BatchedValue& array : Arrays(Add(HloInstruction::CreateGetTupleElement(instruction, i)))) {
      arrays.push_back(std::move(array));
    }
  }
  return arrays;
}

Shape BatchedComputation::FlatTupleShape(absl::Span<const BatchedValue> values) const {
  std::vector<Shape> shapes;
  for (const BatchedValue& value : values) shapes.push_back(ShapeOf(value));
  return ShapeUtil::MakeTupleShape(shapes);
}

HloInstruction* BatchedComputation::FlatTuple(absl::Span<const BatchedValue> values) {
  std::vector<HloInstruction*> elements;
  for (const BatchedValue& value : values) elements.push_back(value.instruction);
  return Add(HloInstruction::CreateTuple(elements));
}

BatchedValues BatchedComputation::Elements(HloInstruction* instruction,
                                           absl::Span<const BatchedValue> like) {
  BatchedValues elements(like.begin(), like.end());
  for (size_t i = 0; i < elements.size(); ++i) {
    elements[i].instruction = Add(HloInstruction::CreateGetTupleElement(instruction, i));
  }
  return elements;
}

std::unique_ptr<HloComputation> BatchedComputation::Finish(absl::Span<const BatchedValue> results) {
  return builder_.Build(FlatTuple(results));
}

std::unique_ptr<HloComputation> BatchedComputation::Finish(const BatchedValue& result) {
  return builder_.Build(result.instruction);
}

std::vector<Shape> ArrayShapes(const Shape& shape) {
  std::vector<Shape> arrays;
  for (const xla::ShapeUtil::IndexedShape& leaf : ShapeUtil::GetLeafShapes(shape)) {
    arrays.push_back(leaf.shape);
  }
  return arrays;
}

}  // namespace tf_tpu_ext
