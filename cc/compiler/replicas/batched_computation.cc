#include "cc/compiler/replicas/batched_computation.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputationProto;
using xla::HloInstructionProto;
using xla::ShapeProto;

bool IsTuple(const ShapeProto& shape) { return shape.element_type() == xla::TUPLE; }

// With a new first dimension.
ShapeProto WithFirst(const ShapeProto& shape, int64_t size) {
  ShapeProto result = shape;
  result.clear_dimensions();
  result.clear_is_dynamic_dimension();
  result.add_dimensions(size);
  for (int64_t dimension : shape.dimensions()) result.add_dimensions(dimension);
  for (int i = 0; i < result.dimensions_size(); ++i) result.add_is_dynamic_dimension(false);
  result.clear_layout();
  auto* layout = result.mutable_layout();
  if (shape.has_layout()) {
    for (int64_t d : shape.layout().minor_to_major()) layout->add_minor_to_major(d + 1);
  } else {
    for (int d = shape.dimensions_size(); d > 0; --d) layout->add_minor_to_major(d);
  }
  layout->add_minor_to_major(0);
  return result;
}

}  // namespace

StackedComputation::StackedComputation(const std::string& name, int num_stacked, int64_t* next_id)
    : num_stacked_(num_stacked), next_id_(next_id) {
  computation_.set_id(NextId());
  computation_.set_name(absl::StrCat(name, ".stacked.", computation_.id()));
}

ShapeProto StackedComputation::StackedShape(const ShapeProto& shape) const {
  return WithFirst(shape, num_stacked_);
}

ShapeProto StackedComputation::ShapeOf(const StackedValue& value) const {
  return value.stacked ? StackedShape(value.shape) : value.shape;
}

HloInstructionProto* StackedComputation::Add(const std::string& opcode, const ShapeProto& shape,
                                             absl::Span<const int64_t> operands) {
  HloInstructionProto* instruction = computation_.add_instructions();
  instruction->set_opcode(opcode);
  instruction->set_id(NextId());
  instruction->set_name(absl::StrCat(opcode, ".stacked.", instruction->id()));
  *instruction->mutable_shape() = shape;
  for (int64_t operand : operands) instruction->add_operand_ids(operand);
  return instruction;
}

HloInstructionProto* StackedComputation::AddCopy(const HloInstructionProto& original,
                                                 const ShapeProto& shape,
                                                 absl::Span<const int64_t> operands) {
  HloInstructionProto* instruction = computation_.add_instructions();
  *instruction = original;
  instruction->set_id(NextId());
  instruction->set_name(absl::StrCat(original.name(), ".stacked.", instruction->id()));
  *instruction->mutable_shape() = shape;
  instruction->clear_operand_ids();
  instruction->clear_sharding();
  for (int64_t operand : operands) instruction->add_operand_ids(operand);
  return instruction;
}

StackedValue StackedComputation::Stack(const StackedValue& value) {
  if (value.stacked) return value;
  HloInstructionProto* broadcast = Add("broadcast", StackedShape(value.shape), {value.id});
  for (int d = 0; d < value.shape.dimensions_size(); ++d) broadcast->add_dimensions(d + 1);
  return {broadcast->id(), true, value.shape};
}

StackedValue StackedComputation::Element(const StackedValue& value, int number) {
  if (!value.stacked) return value;
  HloInstructionProto* slice = Add("slice", WithFirst(value.shape, 1), {value.id});
  auto* first = slice->add_slice_dimensions();
  first->set_start(number);
  first->set_limit(number + 1);
  first->set_stride(1);
  for (int64_t size : value.shape.dimensions()) {
    auto* whole = slice->add_slice_dimensions();
    whole->set_start(0);
    whole->set_limit(size);
    whole->set_stride(1);
  }
  return {Add("reshape", value.shape, {slice->id()})->id(), false, value.shape};
}

StackedValue StackedComputation::Join(absl::Span<const StackedValue> elements) {
  const ShapeProto& shape = elements[0].shape;
  std::vector<int64_t> rows;
  for (const StackedValue& element : elements) {
    rows.push_back(Add("reshape", WithFirst(shape, 1), {element.id})->id());
  }
  HloInstructionProto* joined = Add("concatenate", StackedShape(shape), rows);
  joined->add_dimensions(0);
  return {joined->id(), true, shape};
}

StackedValue StackedComputation::Reshape(const StackedValue& value, const ShapeProto& shape) {
  return {Add("reshape", shape, {value.id})->id(), false, shape};
}

int64_t StackedComputation::Constant(xla::PrimitiveType type, int64_t value) {
  ShapeProto shape;
  shape.set_element_type(type);
  shape.mutable_layout();
  // A constant of the usual type; others are converted from it.
  ShapeProto of_literal = shape;
  of_literal.set_element_type(xla::S64);
  HloInstructionProto* constant = Add("constant", of_literal, {});
  *constant->mutable_literal()->mutable_shape() = std::move(of_literal);
  constant->mutable_literal()->add_s64s(value);
  return type == xla::S64 ? constant->id() : Add("convert", shape, {constant->id()})->id();
}

int64_t StackedComputation::Tuple(const ShapeProto& shape, absl::Span<const StackedValue> arrays) {
  if (!IsTuple(shape)) return arrays[0].id;
  std::vector<int64_t> elements;
  size_t next = 0;
  for (const ShapeProto& element : shape.tuple_shapes()) {
    const size_t count = NumArrays(element);
    elements.push_back(Tuple(element, arrays.subspan(next, count)));
    next += count;
  }
  return Add("tuple", shape, elements)->id();
}

std::vector<StackedValue> StackedComputation::Arrays(int64_t id, const ShapeProto& shape) {
  if (!IsTuple(shape)) return {{id, false, shape}};
  std::vector<StackedValue> arrays;
  for (int i = 0; i < shape.tuple_shapes_size(); ++i) {
    HloInstructionProto* element = Add("get-tuple-element", shape.tuple_shapes(i), {id});
    element->set_tuple_index(i);
    for (StackedValue& array : Arrays(element->id(), shape.tuple_shapes(i))) {
      arrays.push_back(std::move(array));
    }
  }
  return arrays;
}

ShapeProto StackedComputation::FlatTupleShape(absl::Span<const StackedValue> values) const {
  ShapeProto shape;
  shape.set_element_type(xla::TUPLE);
  for (const StackedValue& value : values) *shape.add_tuple_shapes() = ShapeOf(value);
  return shape;
}

int64_t StackedComputation::FlatTuple(absl::Span<const StackedValue> values) {
  std::vector<int64_t> ids;
  for (const StackedValue& value : values) ids.push_back(value.id);
  return Add("tuple", FlatTupleShape(values), ids)->id();
}

std::vector<StackedValue> StackedComputation::Elements(int64_t id,
                                                       absl::Span<const StackedValue> like) {
  std::vector<StackedValue> elements(like.begin(), like.end());
  for (size_t i = 0; i < elements.size(); ++i) {
    HloInstructionProto* element = Add("get-tuple-element", ShapeOf(elements[i]), {id});
    element->set_tuple_index(i);
    elements[i].id = element->id();
  }
  return elements;
}

HloComputationProto StackedComputation::Finish(absl::Span<const StackedValue> results) {
  const ShapeProto shape = FlatTupleShape(results);
  return Finish(FlatTuple(results), shape);
}

HloComputationProto StackedComputation::Finish(const StackedValue& result) {
  return Finish(result.id, ShapeOf(result));
}

HloComputationProto StackedComputation::Finish(int64_t root, const ShapeProto& shape) {
  computation_.set_root_id(root);
  auto* program_shape = computation_.mutable_program_shape();
  *program_shape->mutable_result() = shape;
  for (const HloInstructionProto& instruction : computation_.instructions()) {
    if (instruction.opcode() != "parameter") continue;
    // They stand in the order of their numbers.
    *program_shape->add_parameters() = instruction.shape();
    program_shape->add_parameter_names(instruction.name());
  }
  return std::move(computation_);
}

int NumArrays(const ShapeProto& shape) {
  if (!IsTuple(shape)) return 1;
  int arrays = 0;
  for (const ShapeProto& element : shape.tuple_shapes()) arrays += NumArrays(element);
  return arrays;
}

std::vector<ShapeProto> ArrayShapes(const ShapeProto& shape) {
  if (!IsTuple(shape)) return {shape};
  std::vector<ShapeProto> arrays;
  for (const ShapeProto& element : shape.tuple_shapes()) {
    for (ShapeProto& array : ArrayShapes(element)) arrays.push_back(std::move(array));
  }
  return arrays;
}

}  // namespace tf_tpu_ext
