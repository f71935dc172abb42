#include "cc/compiler/replicas/batching_rules.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "cc/program/kernel_call.h"

namespace tf_tpu_ext {
namespace {

using xla::HloInstructionProto;
using xla::ShapeProto;

using Value = std::vector<StackedValue>;

// Each element of the result depends on the elements of the operands in the same place.
bool IsElementwise(const std::string& opcode) {
  static const auto* const elementwise =
      new absl::flat_hash_set<std::string>({"abs",
                                            "acos",
                                            "acosh",
                                            "add",
                                            "and",
                                            "asin",
                                            "asinh",
                                            "atan2",
                                            "atanh",
                                            "cbrt",
                                            "ceil",
                                            "clamp",
                                            "compare",
                                            "complex",
                                            "convert",
                                            "copy",
                                            "cosh",
                                            "cosine",
                                            "count-leading-zeros",
                                            "divide",
                                            "erf",
                                            "exponential",
                                            "exponential-minus-one",
                                            "floor",
                                            "imag",
                                            "is-finite",
                                            "log",
                                            "log-plus-one",
                                            "logistic",
                                            "maximum",
                                            "minimum",
                                            "multiply",
                                            "negate",
                                            "not",
                                            "or",
                                            "popcnt",
                                            "power",
                                            "real",
                                            "reduce-precision",
                                            "remainder",
                                            "round-nearest-afz",
                                            "round-nearest-even",
                                            "rsqrt",
                                            "select",
                                            "shift-left",
                                            "shift-right-arithmetic",
                                            "shift-right-logical",
                                            "sign",
                                            "sine",
                                            "sinh",
                                            "sqrt",
                                            "subtract",
                                            "tan",
                                            "tanh",
                                            "xor"});
  return elementwise->contains(opcode);
}

template <typename Numbers>
void ShiftByOne(Numbers* numbers) {
  for (auto& number : *numbers) ++number;
}

// As ShiftByOne, with the new dimension before all.
template <typename Numbers>
void ShiftAndPrepend(Numbers* numbers) {
  Numbers shifted;
  shifted.Add(0);
  for (auto number : *numbers) shifted.Add(number + 1);
  *numbers = std::move(shifted);
}

template <typename Numbers>
void Prepend(int64_t first, Numbers* numbers) {
  Numbers longer;
  longer.Add(first);
  longer.MergeFrom(*numbers);
  *numbers = std::move(longer);
}

void PrependWindowDimension(xla::Window* window) {
  xla::Window longer;
  auto* first = longer.add_dimensions();
  first->set_size(1);
  first->set_stride(1);
  first->set_window_dilation(1);
  first->set_base_dilation(1);
  longer.mutable_dimensions()->MergeFrom(window->dimensions());
  *window = std::move(longer);
}

// The kernel calls of cc/program/kernel_call.h whose arrays have the samples of a batch first.
struct KernelRoles {
  // Operands that hold a batch, and that of the result's sizes.
  std::vector<int> batches;
  int sizes = -1;
  // Whether the result holds a batch; else it is a sum over it.
  bool makes_batch = true;
};

std::optional<KernelRoles> RolesOf(const HloInstructionProto& call) {
  static const auto* const roles = new absl::flat_hash_map<std::string, KernelRoles>{
      {"Conv2D", {{0}}},
      {"Conv3D", {{0}}},
      {"DepthwiseConv2dNative", {{0}}},
      {"Conv2DBackpropInput", {{2}, 0}},
      {"Conv3DBackpropInputV2", {{2}, 0}},
      {"DepthwiseConv2dNativeBackpropInput", {{2}, 0}},
      {"Conv2DBackpropFilter", {{0, 2}, 1, false}},
      {"Conv3DBackpropFilterV2", {{0, 2}, 1, false}},
      {"DepthwiseConv2dNativeBackpropFilter", {{0, 2}, 1, false}},
      {"MaxPool", {{0}}},
      {"AvgPool", {{0}}},
      {"MaxPoolGrad", {{0, 1, 2}}},
      {"AvgPoolGrad", {{1}, 0}},
  };
  if (call.custom_call_target() != kKernelTarget) return std::nullopt;
  const absl::StatusOr<KernelCall> kernel = DecodeKernelCall(call.backend_config());
  if (!kernel.ok()) return std::nullopt;
  const auto found = roles->find(kernel->op);
  if (found == roles->end()) return std::nullopt;
  return found->second;
}

// All samples of all replicas as one batch.
ShapeProto BatchShape(const ShapeProto& shape, int num_stacked) {
  ShapeProto batch = shape;
  batch.set_dimensions(0, num_stacked * shape.dimensions(0));
  return batch;
}

// The predicate of a select and the bounds of a clamp may be scalars.
std::vector<int64_t> Elementwise(StackedComputation& out, const ShapeProto& shape,
                                 const Value& operands) {
  std::vector<int64_t> ids;
  for (const StackedValue& operand : operands) {
    const bool scalar = operand.shape.dimensions().empty() && !shape.dimensions().empty();
    if (!scalar) {
      ids.push_back(out.Stack(operand).id);
    } else if (!operand.stacked) {
      ids.push_back(operand.id);
    } else {
      ShapeProto broad = out.StackedShape(shape);
      broad.set_element_type(operand.shape.element_type());
      HloInstructionProto* broadcast = out.Add("broadcast", broad, {operand.id});
      broadcast->add_dimensions(0);
      ids.push_back(broadcast->id());
    }
  }
  return ids;
}

std::optional<StackedValue> DynamicSlice(StackedComputation& out,
                                         const HloInstructionProto& instruction,
                                         const Value& operands) {
  const bool update = instruction.opcode() == "dynamic-update-slice";
  const size_t first_index = update ? 2 : 1;
  const size_t rank = operands[0].shape.dimensions_size();
  if (operands.size() != first_index + rank || rank == 0) return std::nullopt;
  std::vector<int64_t> ids;
  for (size_t i = 0; i < first_index; ++i) ids.push_back(out.Stack(operands[i]).id);
  ids.push_back(out.Constant(operands[first_index].shape.element_type(), 0));
  for (size_t i = first_index; i < operands.size(); ++i) {
    if (operands[i].stacked || !operands[i].shape.dimensions().empty()) return std::nullopt;
    ids.push_back(operands[i].id);
  }
  HloInstructionProto* result =
      out.AddCopy(instruction, out.StackedShape(instruction.shape()), ids);
  if (!update) Prepend(out.num_stacked(), result->mutable_dynamic_slice_sizes());
  return StackedValue{result->id(), true, instruction.shape()};
}

std::optional<StackedValue> Dot(StackedComputation& out, const HloInstructionProto& instruction,
                                const Value& operands) {
  const StackedValue& lhs = operands[0];
  const StackedValue& rhs = operands[1];
  const ShapeProto& shape = instruction.shape();
  ShapeProto made = out.StackedShape(shape);
  const auto& given = instruction.dot_dimension_numbers();
  // Where the dimension of the replicas comes to stand in the product.
  int place = 0;
  if (!lhs.stacked || !rhs.stacked) {
    place = given.lhs_batch_dimensions_size();
    if (!lhs.stacked) {
      place = lhs.shape.dimensions_size() - given.lhs_contracting_dimensions_size();
    }
    std::vector<int64_t> sizes(shape.dimensions().begin(), shape.dimensions().end());
    sizes.insert(sizes.begin() + place, out.num_stacked());
    made.clear_layout();
    for (size_t d = 0; d < sizes.size(); ++d) {
      made.set_dimensions(d, sizes[d]);
      made.mutable_layout()->add_minor_to_major(sizes.size() - 1 - d);
    }
  }
  HloInstructionProto* dot = out.AddCopy(instruction, made, {lhs.id, rhs.id});
  auto* numbers = dot->mutable_dot_dimension_numbers();
  if (lhs.stacked && rhs.stacked) {
    ShiftAndPrepend(numbers->mutable_lhs_batch_dimensions());
    ShiftAndPrepend(numbers->mutable_rhs_batch_dimensions());
  } else if (lhs.stacked) {
    ShiftByOne(numbers->mutable_lhs_batch_dimensions());
  } else {
    ShiftByOne(numbers->mutable_rhs_batch_dimensions());
  }
  if (lhs.stacked) ShiftByOne(numbers->mutable_lhs_contracting_dimensions());
  if (rhs.stacked) ShiftByOne(numbers->mutable_rhs_contracting_dimensions());
  if (place == 0) return StackedValue{dot->id(), true, shape};
  HloInstructionProto* moved = out.Add("transpose", out.StackedShape(shape), {dot->id()});
  moved->add_dimensions(place);
  for (int d = 0; d < made.dimensions_size(); ++d) {
    if (d != place) moved->add_dimensions(d);
  }
  return StackedValue{moved->id(), true, shape};
}

std::optional<StackedValue> Gather(StackedComputation& out, const HloInstructionProto& instruction,
                                   const Value& operands) {
  const bool tables = operands[0].stacked, indices = operands[1].stacked;
  const auto& given = instruction.gather_dimension_numbers();
  if (!given.operand_batching_dims().empty()) return std::nullopt;
  HloInstructionProto* gather = out.AddCopy(instruction, out.StackedShape(instruction.shape()),
                                            {operands[0].id, operands[1].id});
  auto* numbers = gather->mutable_gather_dimension_numbers();
  gather->set_indices_are_sorted(false);
  if (tables) {
    ShiftByOne(numbers->mutable_collapsed_slice_dims());
    ShiftByOne(numbers->mutable_start_index_map());
    Prepend(indices ? 1 : out.num_stacked(), gather->mutable_gather_slice_sizes());
  }
  if (indices) {
    numbers->set_index_vector_dim(given.index_vector_dim() + 1);
    ShiftByOne(numbers->mutable_offset_dims());
    if (tables) {
      numbers->add_operand_batching_dims(0);
      numbers->add_start_indices_batching_dims(0);
    }
  } else {
    ShiftAndPrepend(numbers->mutable_offset_dims());
  }
  return StackedValue{gather->id(), true, instruction.shape()};
}

std::optional<StackedValue> Convolution(StackedComputation& out,
                                        const HloInstructionProto& instruction,
                                        const Value& operands) {
  const auto& numbers = instruction.convolution_dimension_numbers();
  if (operands[1].stacked || numbers.input_batch_dimension() != 0 ||
      numbers.output_batch_dimension() != 0 || instruction.batch_group_count() > 1) {
    return std::nullopt;
  }
  const ShapeProto input = BatchShape(operands[0].shape, out.num_stacked());
  const ShapeProto output = BatchShape(instruction.shape(), out.num_stacked());
  const int64_t batch = out.Reshape(operands[0], input).id;
  const int64_t result = out.AddCopy(instruction, output, {batch, operands[1].id})->id();
  return StackedValue{out.Add("reshape", out.StackedShape(instruction.shape()), {result})->id(),
                      true, instruction.shape()};
}

// A kernel's call with the samples of all replicas as one batch; the sum over it is one for all.
std::optional<StackedValue> KernelOfBatch(StackedComputation& out, const HloInstructionProto& call,
                                          const KernelRoles& roles, const Value& operands) {
  for (int i = 0; i < static_cast<int>(operands.size()); ++i) {
    if (operands[i].stacked && !absl::c_linear_search(roles.batches, i)) return std::nullopt;
  }
  const ShapeProto result =
      roles.makes_batch ? BatchShape(call.shape(), out.num_stacked()) : call.shape();
  std::vector<int64_t> ids;
  std::vector<ShapeProto> shapes;
  for (int i = 0; i < static_cast<int>(operands.size()); ++i) {
    ShapeProto shape = operands[i].shape;
    int64_t id = operands[i].id;
    if (absl::c_linear_search(roles.batches, i)) {
      shape = BatchShape(shape, out.num_stacked());
      id = out.Reshape(out.Stack(operands[i]), shape).id;
    } else if (i == roles.sizes) {
      HloInstructionProto* sizes = out.Add("constant", shape, {});
      *sizes->mutable_literal()->mutable_shape() = shape;
      for (int64_t size : result.dimensions()) sizes->mutable_literal()->add_s32s(size);
      id = sizes->id();
    }
    ids.push_back(id);
    shapes.push_back(std::move(shape));
  }
  HloInstructionProto* made = out.AddCopy(call, result, ids);
  for (int i = 0; i < made->operand_shapes_with_layout_size(); ++i) {
    for (int d = 0; d < shapes[i].dimensions_size(); ++d) {
      made->mutable_operand_shapes_with_layout(i)->set_dimensions(d, shapes[i].dimensions(d));
    }
  }
  if (!roles.makes_batch) return StackedValue{made->id(), false, call.shape()};
  return StackedValue{out.Add("reshape", out.StackedShape(call.shape()), {made->id()})->id(), true,
                      call.shape()};
}

// The stacked form of an instruction that makes one array, if it has one.
std::optional<StackedValue> StackArray(StackedComputation& out,
                                       const HloInstructionProto& instruction,
                                       const Value& operands) {
  const ShapeProto& shape = instruction.shape();
  if (shape.element_type() == xla::TUPLE || operands.empty()) return std::nullopt;
  const std::string& opcode = instruction.opcode();
  const auto copy = [&](const std::vector<int64_t>& ids) {
    return out.AddCopy(instruction, out.StackedShape(shape), ids);
  };
  const auto made = [&](const HloInstructionProto* result) {
    return StackedValue{result->id(), true, shape};
  };
  const auto all_stacked = [&] {
    std::vector<int64_t> ids;
    for (const StackedValue& operand : operands) ids.push_back(out.Stack(operand).id);
    return ids;
  };
  if (IsElementwise(opcode)) return made(copy(Elementwise(out, shape, operands)));
  if (opcode == "reshape" || opcode == "bitcast-convert") {
    HloInstructionProto* reshape = copy({operands[0].id});
    reshape->clear_dimensions();
    return made(reshape);
  }
  if (opcode == "broadcast" || opcode == "transpose") {
    HloInstructionProto* result = copy({operands[0].id});
    ShiftAndPrepend(result->mutable_dimensions());
    return made(result);
  }
  if (opcode == "concatenate" || opcode == "reverse") {
    HloInstructionProto* result = copy(all_stacked());
    ShiftByOne(result->mutable_dimensions());
    return made(result);
  }
  if (opcode == "slice") {
    HloInstructionProto* slice = copy({operands[0].id});
    slice->clear_slice_dimensions();
    auto* whole = slice->add_slice_dimensions();
    whole->set_start(0);
    whole->set_limit(out.num_stacked());
    whole->set_stride(1);
    slice->mutable_slice_dimensions()->MergeFrom(instruction.slice_dimensions());
    return made(slice);
  }
  if (opcode == "pad" && !operands[1].stacked) {
    HloInstructionProto* pad = copy({operands[0].id, operands[1].id});
    pad->clear_padding_config();
    pad->mutable_padding_config()->add_dimensions();
    pad->mutable_padding_config()->MergeFrom(instruction.padding_config());
    return made(pad);
  }
  if (opcode == "dynamic-slice" || opcode == "dynamic-update-slice") {
    return DynamicSlice(out, instruction, operands);
  }
  if (opcode == "select-and-scatter" && !operands[2].stacked) {
    HloInstructionProto* result =
        copy({out.Stack(operands[0]).id, out.Stack(operands[1]).id, operands[2].id});
    PrependWindowDimension(result->mutable_window());
    return made(result);
  }
  if (opcode == "dot") return Dot(out, instruction, operands);
  if (opcode == "gather") return Gather(out, instruction, operands);
  if (opcode == "cholesky" || opcode == "triangular-solve" || opcode == "fft") {
    return made(copy(all_stacked()));  // of as many matrices or rows as there are
  }
  if (opcode == "convolution") return Convolution(out, instruction, operands);
  if (opcode == "custom-call") {
    const std::optional<KernelRoles> roles = RolesOf(instruction);
    if (!roles.has_value() || !roles->makes_batch) return std::nullopt;
    return KernelOfBatch(out, instruction, *roles, operands);
  }
  return std::nullopt;
}

// Instructions that may make several arrays of one shape's.
std::optional<Value> StackSeveral(StackedComputation& out, const HloInstructionProto& instruction,
                                  const Value& operands) {
  const bool sort = instruction.opcode() == "sort";
  const size_t arrays = sort ? operands.size() : operands.size() / 2;
  std::vector<int64_t> ids;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i >= arrays && operands[i].stacked) return std::nullopt;  // what a reduction begins with
    ids.push_back(i < arrays ? out.Stack(operands[i]).id : operands[i].id);
  }
  Value results;
  for (const ShapeProto& shape : ArrayShapes(instruction.shape())) {
    results.push_back({-1, true, shape});
  }
  HloInstructionProto* made;
  if (instruction.shape().element_type() == xla::TUPLE) {
    made = out.AddCopy(instruction, out.FlatTupleShape(results), ids);
    results = out.Elements(made->id(), results);
  } else {
    made = out.AddCopy(instruction, out.StackedShape(instruction.shape()), ids);
    results[0].id = made->id();
  }
  if (instruction.opcode() == "reduce-window") {
    PrependWindowDimension(made->mutable_window());
  } else {
    ShiftByOne(made->mutable_dimensions());
  }
  return results;
}

}  // namespace

std::optional<Value> StackForAll(const HloInstructionProto& instruction, const Value& operands,
                                 StackedComputation* out) {
  if (std::optional<StackedValue> array = StackArray(*out, instruction, operands)) {
    return Value{*std::move(array)};
  }
  const std::string& opcode = instruction.opcode();
  if (opcode != "reduce" && opcode != "reduce-window" && opcode != "sort") return std::nullopt;
  return StackSeveral(*out, instruction, operands);
}

std::optional<StackedValue> SumOfReplicas(const HloInstructionProto& summed, const Value& operands,
                                          bool from_zero, StackedComputation* out) {
  const std::string& opcode = summed.opcode();
  const auto made = [&](const HloInstructionProto* instruction) {
    return StackedValue{instruction->id(), false, summed.shape()};
  };
  if (opcode == "dot" && operands[0].stacked && operands[1].stacked) {
    HloInstructionProto* dot =
        out->AddCopy(summed, summed.shape(), {operands[0].id, operands[1].id});
    auto* numbers = dot->mutable_dot_dimension_numbers();
    ShiftByOne(numbers->mutable_lhs_batch_dimensions());
    ShiftByOne(numbers->mutable_rhs_batch_dimensions());
    ShiftAndPrepend(numbers->mutable_lhs_contracting_dimensions());
    ShiftAndPrepend(numbers->mutable_rhs_contracting_dimensions());
    return made(dot);
  }
  if (opcode == "reduce" && operands.size() == 2 && !operands[1].stacked && from_zero) {
    HloInstructionProto* reduce =
        out->AddCopy(summed, summed.shape(), {operands[0].id, operands[1].id});
    ShiftAndPrepend(reduce->mutable_dimensions());
    return made(reduce);
  }
  if (opcode == "scatter" && operands.size() == 3 && !operands[0].stacked && from_zero &&
      summed.scatter_dimension_numbers().input_batching_dims().empty()) {
    HloInstructionProto* scatter =
        out->AddCopy(summed, summed.shape(),
                     {operands[0].id, out->Stack(operands[1]).id, out->Stack(operands[2]).id});
    auto* numbers = scatter->mutable_scatter_dimension_numbers();
    ShiftByOne(numbers->mutable_update_window_dims());
    numbers->set_index_vector_dim(numbers->index_vector_dim() + 1);
    scatter->set_indices_are_sorted(false);
    scatter->set_unique_indices(false);
    return made(scatter);
  }
  if (opcode == "custom-call") {
    const std::optional<KernelRoles> roles = RolesOf(summed);
    if (!roles.has_value() || roles->makes_batch) return std::nullopt;
    return KernelOfBatch(*out, summed, *roles, operands);
  }
  return std::nullopt;
}

}  // namespace tf_tpu_ext
