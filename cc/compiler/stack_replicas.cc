#include "cc/compiler/stack_replicas.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/compiler/collective_patterns.h"
#include "cc/compiler/stacked_computation.h"
#include "cc/runtime/kernel_call.h"
#include "cc/transfer/channels.h"
#include "cc/transfer/transfer_call.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputationProto;
using xla::HloInstructionProto;
using xla::HloModuleProto;
using xla::ShapeProto;

// The arrays of an instruction, which has several if it is a tuple.
using Value = std::vector<StackedValue>;

// Past this, what has to be done for each replica would cost more than stacking saves.
constexpr int64_t kMaxGrowth = 8;

absl::Status Alone(const HloInstructionProto& instruction, const std::string& why) {
  return absl::UnimplementedError(
      absl::StrCat(why, ": ", instruction.name(), " (", instruction.opcode(), ")"));
}

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

// Whether it acts on more than its replica, or on the host.
bool Communicates(const HloInstructionProto& instruction) {
  static const auto* const opcodes = new absl::flat_hash_set<std::string>(
      {"after-all", "add-dependency", "domain", "infeed", "outfeed", "partition-id",
       "ragged-all-to-all", "recv", "recv-done", "reduce-scatter", "replica-id", "send",
       "send-done"});
  const std::string& opcode = instruction.opcode();
  return opcodes->contains(opcode) || absl::StartsWith(opcode, "all-") ||
         absl::StartsWith(opcode, "async-") || absl::StartsWith(opcode, "collective-") ||
         absl::StartsWith(opcode, "copy-") || instruction.custom_call_has_side_effect();
}

bool IsRandom(const std::string& opcode) {
  return opcode == "rng" || opcode == "rng-get-and-update-state";
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

// The kernel calls of cc/runtime/kernel_call.h whose arrays have the samples of a batch first.
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
  // The op stands at the beginning of an attribute, before its node's name.
  const std::string key = absl::StrCat(kKernelOp, " = \"");
  const std::string& config = call.backend_config();
  const size_t begin = config.find(key);
  if (begin == std::string::npos) return std::nullopt;
  const size_t end = config.find(' ', begin + key.size());
  if (end == std::string::npos) return std::nullopt;
  const auto found = roles->find(config.substr(begin + key.size(), end - begin - key.size()));
  if (found == roles->end()) return std::nullopt;
  return found->second;
}

// Takes a batch from the core's infeed.
bool IsInfeed(const HloInstructionProto& instruction) {
  return instruction.custom_call_target() == kTransferTarget &&
         absl::StrContains(instruction.backend_config(),
                           absl::StrCat(kTransferReceive, " = \"", kInfeedName, "\""));
}

bool IsOutfeed(const HloInstructionProto& instruction) {
  return instruction.custom_call_target() == kTransferTarget &&
         absl::StrContains(instruction.backend_config(),
                           absl::StrCat(kTransferSend, " = \"", kOutfeedName, "\""));
}

class ReplicaStacker {
 public:
  ReplicaStacker(const HloModuleProto& module, const StackOptions& options)
      : module_(module),
        stacked_(options.group_size),
        num_replicas_(options.num_replicas),
        num_groups_(options.num_replicas / options.group_size) {
    int64_t num_instructions = 0;
    for (const HloComputationProto& computation : module.computations()) {
      computations_[computation.id()] = &computation;
      next_id_ = std::max<int64_t>(next_id_, LocalId(computation.id()) + 1);
      num_instructions += computation.instructions_size();
      for (const HloInstructionProto& instruction : computation.instructions()) {
        meets_ = meets_ || instruction.opcode() == "all-reduce";
        next_id_ = std::max<int64_t>(next_id_, LocalId(instruction.id()) + 1);
      }
    }
    max_id_ = next_id_ + kMaxGrowth * stacked_ * (num_instructions + 100);
  }

  // Stacks the whole program for such parameters.
  absl::StatusOr<StackedModule> Run(const std::vector<bool>& stacked_parameters) {
    const HloComputationProto& entry = *computations_.at(module_.entry_computation_id());
    made_.clear();
    StackedComputation out(entry.name(), stacked_, &next_id_);
    std::vector<Value> parameters(stacked_parameters.size());
    std::vector<const HloInstructionProto*> originals(stacked_parameters.size());
    for (const HloInstructionProto& instruction : entry.instructions()) {
      if (instruction.opcode() != "parameter") continue;
      originals[instruction.parameter_number()] = &instruction;
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (originals[i] == nullptr) return absl::InternalError("A parameter is missing.");
      StackedValue value{-1, stacked_parameters[i], originals[i]->shape()};
      value.id = out.AddCopy(*originals[i], out.ShapeOf(value), {})->id();
      parameters[i] = {value};
    }
    auto results = Stack(entry, parameters, &out);
    if (!results.ok()) return results.status();
    StackedModule stacked;
    stacked.stacked_parameters = stacked_parameters;
    for (const StackedValue& result : *results) stacked.stacked_results.push_back(result.stacked);
    HloModuleProto& module = stacked.module;
    module = module_;
    module.clear_input_output_alias();
    module.clear_computations();
    HloComputationProto stacked_entry = out.Finish(*results);
    absl::flat_hash_set<int64_t> called;
    FindCalled(stacked_entry, &called);
    // Callees come first.
    for (const HloComputationProto& computation : module_.computations()) {
      if (called.contains(computation.id())) *module.add_computations() = computation;
    }
    for (HloComputationProto& computation : made_) {
      if (called.contains(computation.id())) *module.add_computations() = std::move(computation);
    }
    module.set_entry_computation_id(stacked_entry.id());
    module.set_entry_computation_name(stacked_entry.name());
    *module.mutable_host_program_shape() = stacked_entry.program_shape();
    *module.add_computations() = std::move(stacked_entry);
    return stacked;
  }

 private:
  // A computation of the original program, as its stacked form is made.
  struct Scope {
    explicit Scope(const HloComputationProto& computation) : original(computation) {
      for (const HloInstructionProto& instruction : computation.instructions()) {
        instructions[LocalId(instruction.id())] = &instruction;
      }
    }
    const HloInstructionProto& Operand(const HloInstructionProto& instruction, int number) const {
      return *instructions.at(LocalId(instruction.operand_ids(number)));
    }

    const HloComputationProto& original;
    InstructionTable instructions;
    // Those that the result needs, with the numbers of their users.
    absl::flat_hash_map<int32_t, int> users;
    absl::flat_hash_map<int32_t, Value> values;
    StackedComputation* out = nullptr;
  };

  // Adds all that the computation calls.
  void FindCalled(const HloComputationProto& computation,
                  absl::flat_hash_set<int64_t>* called) const {
    for (const HloInstructionProto& instruction : computation.instructions()) {
      for (int64_t id : instruction.called_computation_ids()) {
        if (!called->insert(id).second) continue;
        const auto original = computations_.find(id);
        FindCalled(
            original != computations_.end()
                ? *original->second
                : *absl::c_find_if(made_, [id](const auto& made) { return made.id() == id; }),
            called);
      }
    }
  }

  // Adds the computation's stacked form to `out` and returns its result.
  absl::StatusOr<Value> Stack(const HloComputationProto& computation,
                              const std::vector<Value>& parameters, StackedComputation* out) {
    Scope scope(computation);
    scope.out = out;
    scope.users[LocalId(computation.root_id())] = 1;
    for (int i = computation.instructions_size() - 1; i >= 0; --i) {
      const HloInstructionProto& instruction = computation.instructions(i);
      if (!scope.users.contains(LocalId(instruction.id())) && !Acts(instruction)) continue;
      for (int64_t operand : instruction.operand_ids()) ++scope.users[LocalId(operand)];
    }
    for (const HloInstructionProto& instruction : computation.instructions()) {
      const int32_t id = LocalId(instruction.id());
      if (instruction.opcode() == "parameter") {
        scope.values[id] = parameters[instruction.parameter_number()];
        continue;
      }
      if (!scope.users.contains(id) && !Acts(instruction)) continue;
      if (next_id_ > max_id_) return Alone(instruction, "too much stays with the replicas");
      auto value = StackInstruction(scope, instruction);
      if (!value.ok()) return value.status();
      scope.values[id] = *std::move(value);
    }
    return scope.values.at(LocalId(computation.root_id()));
  }

  // Whether it matters though nobody reads it.
  bool Acts(const HloInstructionProto& instruction) {
    if (instruction.custom_call_has_side_effect() || instruction.opcode() == "outfeed" ||
        instruction.opcode() == "send") {
      return true;
    }
    return absl::c_any_of(instruction.called_computation_ids(), [this](int64_t id) {
      const auto [known, fresh] = acting_computations_.emplace(id, false);
      if (fresh) {
        const bool acts =
            absl::c_any_of(computations_.at(id)->instructions(),
                           [this](const HloInstructionProto& inner) { return Acts(inner); });
        acting_computations_[id] = acts;
        return acts;
      }
      return known->second;
    });
  }

  static Value Operands(const Scope& scope, const HloInstructionProto& instruction) {
    Value operands;
    for (int64_t id : instruction.operand_ids()) {
      for (const StackedValue& array : scope.values.at(LocalId(id))) operands.push_back(array);
    }
    return operands;
  }

  static bool IsMirrored(const Value& values) {
    return absl::c_none_of(values, [](const StackedValue& value) { return value.stacked; });
  }

  // Whether the instruction, with all that it calls, does the same wherever it runs; random numbers
  // are refused unless allowed.
  bool IsPure(const HloInstructionProto& instruction, bool random) const {
    if (Communicates(instruction) || (!random && IsRandom(instruction.opcode()))) return false;
    return absl::c_all_of(instruction.called_computation_ids(), [&](int64_t id) {
      const auto found = computations_.find(id);
      return found != computations_.end() &&
             absl::c_all_of(found->second->instructions(), [&](const HloInstructionProto& inner) {
               return IsPure(inner, random);
             });
    });
  }

  absl::StatusOr<Value> StackInstruction(Scope& scope, const HloInstructionProto& instruction) {
    const std::string& opcode = instruction.opcode();
    if (instruction.control_predecessor_ids_size() > 0) {
      return Alone(instruction, "an instruction that waits for others");
    }
    for (const ShapeProto& shape : ArrayShapes(instruction.shape())) {
      if (absl::c_linear_search(shape.is_dynamic_dimension(), true)) {
        return Alone(instruction, "a dynamic size");
      }
    }
    if (opcode == "all-to-all") return Value{StackedValue()};  // for its slice only
    Value operands = Operands(scope, instruction);
    for (const StackedValue& operand : operands) {
      if (operand.id >= 0) continue;
      if (opcode == "slice") return FirstReplica(scope, instruction);
      return Alone(instruction, "an exchange between replicas");
    }
    // Who waits on the host for a replica's other effects, or for the outfeed of one that needs no
    // other, may let another replica wait for that.
    if (IsInfeed(instruction) || (IsOutfeed(instruction) && meets_)) {
      return Feed(*scope.out, instruction, operands);
    }
    if (opcode == "after-all") return ForAll(scope, instruction);
    if (opcode == "tuple") return operands;
    if (opcode == "optimization-barrier") return Barrier(*scope.out, instruction, operands);
    if (opcode == "set-dimension-size") return Value{operands[0]};  // not dynamic: to what it is
    if (opcode == "get-tuple-element") return ElementOfTuple(scope, instruction, operands);
    if (opcode == "replica-id") return ReplicaId(*scope.out, instruction);
    if (opcode == "all-reduce") return AllReduce(scope, instruction, operands);
    if (IsMirrored(operands) && IsPure(instruction, /*random=*/false)) {
      return ForAll(scope, instruction);
    }
    if (opcode == "call") return Call(instruction, scope);
    if (opcode == "while") return While(scope, instruction, operands);
    if (opcode == "conditional") return Conditional(scope, instruction);
    if (Communicates(instruction)) return Alone(instruction, "it acts outside of its replica");
    std::optional<StackedValue> stacked = StackArray(*scope.out, instruction, operands);
    if (stacked.has_value()) return Value{*std::move(stacked)};
    if (opcode == "reduce" || opcode == "reduce-window" || opcode == "sort") {
      std::optional<Value> several = StackSeveral(*scope.out, instruction, operands);
      if (several.has_value()) return *std::move(several);
    }
    return ForEach(scope, instruction);
  }

  Value ElementOfTuple(const Scope& scope, const HloInstructionProto& instruction,
                       const Value& arrays) const {
    const ShapeProto& shape = scope.Operand(instruction, 0).shape();
    size_t begin = 0;
    for (int i = 0; i < instruction.tuple_index(); ++i) {
      begin += ArrayShapes(shape.tuple_shapes(i)).size();
    }
    const size_t count = ArrayShapes(shape.tuple_shapes(instruction.tuple_index())).size();
    return Value(arrays.begin() + begin, arrays.begin() + begin + count);
  }

  static Value Barrier(StackedComputation& out, const HloInstructionProto& instruction,
                       const Value& operands) {
    return ElementsOf(out, AddOfTuple(out, instruction, operands, {TupleOf(out, operands)})->id(),
                      operands);
  }

  Value ReplicaId(StackedComputation& out, const HloInstructionProto& instruction) const {
    const ShapeProto& scalar = instruction.shape();
    const ShapeProto all = out.StackedShape(scalar);
    const int64_t group = out.AddCopy(instruction, scalar, {})->id();
    const int64_t size = out.Constant(scalar.element_type(), stacked_);
    const int64_t first = out.Add("multiply", scalar, {group, size})->id();
    HloInstructionProto* offsets = out.Add("iota", all, {});
    offsets->add_dimensions(0);
    const int64_t firsts = out.Stack({first, false, scalar}).id;
    return {{out.Add("add", all, {firsts, offsets->id()})->id(), true, scalar}};
  }

  // Each replica's infeed or outfeed, one after the other.
  Value Feed(StackedComputation& out, const HloInstructionProto& instruction,
             const Value& operands) const {
    int64_t token = operands.back().id;
    std::vector<Value> replicas;
    for (int j = 0; j < stacked_; ++j) {
      std::vector<int64_t> ids;
      for (size_t i = 0; i + 1 < operands.size(); ++i) {
        ids.push_back(out.Element(operands[i], j).id);
      }
      ids.push_back(token);
      HloInstructionProto* call = out.AddCopy(instruction, instruction.shape(), ids);
      std::string config = call->backend_config();
      config.insert(config.rfind('}'), absl::StrCat(", ", kTransferMember, " = ", j, " : i64"));
      call->set_backend_config(config);
      replicas.push_back(out.Arrays(call->id(), instruction.shape()));
      token = replicas.back().back().id;
    }
    Value results;
    for (size_t array = 0; array + 1 < replicas[0].size(); ++array) {
      Value elements;
      for (const Value& replica : replicas) elements.push_back(replica[array]);
      results.push_back(out.Join(elements));
    }
    results.push_back(replicas.back().back());
    return results;
  }

  // What is the same for all replicas is computed once.
  Value ForAll(Scope& scope, const HloInstructionProto& instruction) const {
    StackedComputation& out = *scope.out;
    std::vector<int64_t> operands;
    for (int i = 0; i < instruction.operand_ids_size(); ++i) {
      const HloInstructionProto& operand = scope.Operand(instruction, i);
      operands.push_back(out.Tuple(operand.shape(), scope.values.at(LocalId(operand.id()))));
    }
    return out.Arrays(out.AddCopy(instruction, instruction.shape(), operands)->id(),
                      instruction.shape());
  }

  // What there is no other way for is computed for one replica after the other.
  absl::StatusOr<Value> ForEach(Scope& scope, const HloInstructionProto& instruction) const {
    if (!IsPure(instruction, /*random=*/true)) {
      return Alone(instruction, "it communicates, not with all replicas at once");
    }
    StackedComputation& out = *scope.out;
    std::vector<Value> replicas;
    for (int j = 0; j < stacked_; ++j) {
      std::vector<int64_t> operands;
      for (int i = 0; i < instruction.operand_ids_size(); ++i) {
        const HloInstructionProto& operand = scope.Operand(instruction, i);
        Value elements;
        for (const StackedValue& array : scope.values.at(LocalId(operand.id()))) {
          elements.push_back(out.Element(array, j));
        }
        operands.push_back(out.Tuple(operand.shape(), elements));
      }
      replicas.push_back(out.Arrays(out.AddCopy(instruction, instruction.shape(), operands)->id(),
                                    instruction.shape()));
    }
    Value result;
    for (size_t array = 0; array < replicas[0].size(); ++array) {
      Value elements;
      for (const Value& replica : replicas) elements.push_back(replica[array]);
      result.push_back(out.Join(elements));
    }
    return result;
  }

  absl::StatusOr<Value> Call(const HloInstructionProto& instruction, Scope& scope) {
    std::vector<Value> parameters;
    for (int64_t id : instruction.operand_ids()) parameters.push_back(scope.values.at(LocalId(id)));
    return Stack(*computations_.at(instruction.called_computation_ids(0)), parameters, scope.out);
  }

  // Makes a computation with a tuple of the arrays as its only parameter.
  absl::StatusOr<Value> StackCalled(int64_t id, const Value& like, StackedComputation* out) {
    ShapeProto shape;
    shape.set_element_type(xla::TUPLE);
    for (const StackedValue& value : like) *shape.add_tuple_shapes() = out->ShapeOf(value);
    HloInstructionProto* parameter = out->Add("parameter", shape, {});
    parameter->set_parameter_number(0);
    Value arrays = like;
    for (size_t i = 0; i < arrays.size(); ++i) {
      HloInstructionProto* element =
          out->Add("get-tuple-element", shape.tuple_shapes(i), {parameter->id()});
      element->set_tuple_index(i);
      arrays[i].id = element->id();
    }
    return Stack(*computations_.at(id), {arrays}, out);
  }

  absl::StatusOr<Value> While(Scope& scope, const HloInstructionProto& instruction, Value state) {
    const int64_t body_id = instruction.called_computation_ids(0);
    const int64_t condition_id = instruction.called_computation_ids(1);
    StackedComputation& out = *scope.out;
    const size_t made = made_.size();
    Value like = state;
    // What a round makes different for the replicas is different from the beginning.
    while (true) {
      StackedComputation condition(computations_.at(condition_id)->name(), stacked_, &next_id_);
      auto goes_on = StackCalled(condition_id, like, &condition);
      if (!goes_on.ok()) return goes_on.status();
      if (!IsMirrored(*goes_on)) {
        made_.resize(made);
        return ForEach(scope, instruction);  // replicas leave it in different rounds
      }
      StackedComputation body(computations_.at(body_id)->name(), stacked_, &next_id_);
      auto next = StackCalled(body_id, like, &body);
      if (!next.ok()) return next.status();
      bool changed = false;
      for (size_t i = 0; i < like.size(); ++i) {
        if (like[i].stacked && !(*next)[i].stacked) (*next)[i] = body.Stack((*next)[i]);
        changed = changed || like[i].stacked != (*next)[i].stacked;
        like[i].stacked = (*next)[i].stacked;
      }
      if (changed) {
        made_.resize(made);
        continue;
      }
      const HloComputationProto finished_condition = condition.Finish((*goes_on)[0]);
      const HloComputationProto finished_body = body.Finish(*next);
      for (size_t i = 0; i < like.size(); ++i) {
        if (like[i].stacked) state[i] = out.Stack(state[i]);
      }
      HloInstructionProto* loop = AddOfTuple(out, instruction, state, {TupleOf(out, state)});
      loop->clear_called_computation_ids();
      loop->add_called_computation_ids(finished_body.id());
      loop->add_called_computation_ids(finished_condition.id());
      loop->clear_backend_config();
      made_.push_back(finished_condition);
      made_.push_back(finished_body);
      return ElementsOf(out, loop->id(), like);
    }
  }

  absl::StatusOr<Value> Conditional(Scope& scope, const HloInstructionProto& instruction) {
    StackedComputation& out = *scope.out;
    const StackedValue branch = scope.values.at(LocalId(instruction.operand_ids(0)))[0];
    if (branch.stacked) return ForEach(scope, instruction);
    std::vector<StackedComputation> branches;
    std::vector<Value> results;
    std::vector<int64_t> operands = {branch.id};
    for (int i = 0; i < instruction.called_computation_ids_size(); ++i) {
      const int64_t id = instruction.called_computation_ids(i);
      const Value& argument = scope.values.at(LocalId(instruction.operand_ids(i + 1)));
      branches.emplace_back(computations_.at(id)->name(), stacked_, &next_id_);
      auto result = StackCalled(id, argument, &branches.back());
      if (!result.ok()) return result.status();
      results.push_back(*std::move(result));
      operands.push_back(TupleOf(out, argument));
    }
    Value like = results[0];
    for (size_t i = 0; i < like.size(); ++i) {
      for (const Value& result : results) like[i].stacked = like[i].stacked || result[i].stacked;
    }
    HloInstructionProto* conditional = AddOfTuple(out, instruction, like, operands);
    conditional->clear_called_computation_ids();
    for (size_t b = 0; b < branches.size(); ++b) {
      for (size_t i = 0; i < like.size(); ++i) {
        if (like[i].stacked) results[b][i] = branches[b].Stack(results[b][i]);
      }
      made_.push_back(branches[b].Finish(results[b]));
      conditional->add_called_computation_ids(made_.back().id());
    }
    return ElementsOf(out, conditional->id(), like);
  }

  static int64_t TupleOf(StackedComputation& out, const Value& arrays) {
    ShapeProto shape;
    shape.set_element_type(xla::TUPLE);
    std::vector<int64_t> ids;
    for (const StackedValue& array : arrays) {
      *shape.add_tuple_shapes() = out.ShapeOf(array);
      ids.push_back(array.id);
    }
    return out.Add("tuple", shape, ids)->id();
  }

  static HloInstructionProto* AddOfTuple(StackedComputation& out,
                                         const HloInstructionProto& instruction, const Value& like,
                                         const std::vector<int64_t>& operands) {
    ShapeProto shape;
    shape.set_element_type(xla::TUPLE);
    for (const StackedValue& array : like) *shape.add_tuple_shapes() = out.ShapeOf(array);
    return out.AddCopy(instruction, shape, operands);
  }

  static Value ElementsOf(StackedComputation& out, int64_t id, const Value& like) {
    Value elements = like;
    for (size_t i = 0; i < like.size(); ++i) {
      HloInstructionProto* element = out.Add("get-tuple-element", out.ShapeOf(like[i]), {id});
      element->set_tuple_index(i);
      elements[i].id = element->id();
    }
    return elements;
  }

  absl::StatusOr<Value> FirstReplica(Scope& scope, const HloInstructionProto& instruction) const {
    const HloInstructionProto* first =
        FirstReplicasValue(instruction, scope.instructions, num_replicas_);
    if (first == nullptr) return Alone(instruction, "an exchange between replicas");
    StackedComputation& out = *scope.out;
    const StackedValue value = scope.values.at(LocalId(first->id()))[0];
    if (!value.stacked) return Value{value};
    // The same exchange, between the groups.
    const HloInstructionProto& exchange = scope.Operand(instruction, 0);
    const HloInstructionProto& pieces = scope.Operand(exchange, 0);
    ShapeProto shape = pieces.shape();
    const int split = pieces.dimensions(0);
    shape.set_dimensions(split, num_groups_ * first->shape().dimensions(split));
    const std::vector<int64_t> copies(num_groups_, out.Element(value, 0).id);
    const int64_t joined = out.AddCopy(pieces, shape, copies)->id();
    HloInstructionProto* sent = out.AddCopy(exchange, shape, {joined});
    MeetReplicas(num_groups_, sent);
    return Value{{out.AddCopy(instruction, instruction.shape(), {sent->id()})->id(), false,
                  instruction.shape()}};
  }

  absl::StatusOr<Value> AllReduce(Scope& scope, const HloInstructionProto& instruction,
                                  const Value& operands) const {
    if (operands.size() != 1 || !MeetsAllReplicas(instruction, num_replicas_)) {
      return Alone(instruction, "an exchange between some of the replicas");
    }
    static const auto* const associative = new absl::flat_hash_set<std::string>(
        {"add", "and", "maximum", "minimum", "multiply", "or", "xor"});
    const std::string opcode =
        ReducerOpcode(*computations_.at(instruction.called_computation_ids(0)),
                      instruction.shape().element_type());
    if (!associative->contains(opcode)) return Alone(instruction, "an unusual reduction");
    StackedComputation& out = *scope.out;
    std::optional<StackedValue> combined;
    if (opcode == "add") combined = SumOver(scope, scope.Operand(instruction, 0));
    if (!combined.has_value()) {
      combined = out.Element(operands[0], 0);
      for (int j = 1; j < stacked_; ++j) {
        const StackedValue next = out.Element(operands[0], j);
        combined->id = out.Add(opcode, combined->shape, {combined->id, next.id})->id();
      }
    }
    HloInstructionProto* reduced = out.AddCopy(instruction, instruction.shape(), {combined->id});
    MeetReplicas(num_groups_, reduced);
    return Value{{reduced->id(), false, instruction.shape()}};
  }

  // The sum of a value over the replicas, where there is a way to it that does not need the value
  // of each replica.
  std::optional<StackedValue> SumOver(Scope& scope, const HloInstructionProto& summed) const {
    const int32_t id = LocalId(summed.id());
    const Value& value = scope.values.at(id);
    if (value.size() != 1 || !value[0].stacked || scope.users.at(id) != 1) return std::nullopt;
    StackedComputation& out = *scope.out;
    const std::string& opcode = summed.opcode();
    const auto operand = [&](int i) { return scope.values.at(LocalId(summed.operand_ids(i)))[0]; };
    const auto made = [&](const HloInstructionProto* instruction) {
      return StackedValue{instruction->id(), false, summed.shape()};
    };
    if (opcode == "reshape" || opcode == "transpose" || opcode == "negate" || opcode == "copy") {
      auto sum = SumOver(scope, scope.Operand(summed, 0));
      if (!sum.has_value()) return std::nullopt;
      return made(out.AddCopy(summed, summed.shape(), {sum->id}));
    }
    if (opcode == "multiply" || (opcode == "divide" && !operand(1).stacked)) {
      const int factor = operand(1).stacked ? 0 : 1;
      if (operand(factor).stacked) return std::nullopt;
      auto sum = SumOver(scope, scope.Operand(summed, 1 - factor));
      if (!sum.has_value()) return std::nullopt;
      std::vector<int64_t> ids = {sum->id, sum->id};
      ids[factor] = operand(factor).id;
      return made(out.AddCopy(summed, summed.shape(), ids));
    }
    if (opcode == "dot" && operand(0).stacked && operand(1).stacked) {
      HloInstructionProto* dot =
          out.AddCopy(summed, summed.shape(), {operand(0).id, operand(1).id});
      auto* numbers = dot->mutable_dot_dimension_numbers();
      ShiftByOne(numbers->mutable_lhs_batch_dimensions());
      ShiftByOne(numbers->mutable_rhs_batch_dimensions());
      ShiftAndPrepend(numbers->mutable_lhs_contracting_dimensions());
      ShiftAndPrepend(numbers->mutable_rhs_contracting_dimensions());
      return made(dot);
    }
    if (opcode == "reduce" && summed.operand_ids_size() == 2 && !operand(1).stacked &&
        IsZero(scope, scope.Operand(summed, 1)) && ReducesBy(summed, "add")) {
      HloInstructionProto* reduce =
          out.AddCopy(summed, summed.shape(), {operand(0).id, operand(1).id});
      ShiftAndPrepend(reduce->mutable_dimensions());
      return made(reduce);
    }
    if (opcode == "scatter" && summed.operand_ids_size() == 3 && !operand(0).stacked &&
        IsZero(scope, scope.Operand(summed, 0)) && ReducesBy(summed, "add") &&
        summed.scatter_dimension_numbers().input_batching_dims().empty()) {
      HloInstructionProto* scatter =
          out.AddCopy(summed, summed.shape(),
                      {operand(0).id, out.Stack(operand(1)).id, out.Stack(operand(2)).id});
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
      return KernelOfBatch(out, summed, *roles, Operands(scope, summed));
    }
    return std::nullopt;
  }

  bool ReducesBy(const HloInstructionProto& instruction, const std::string& opcode) const {
    const auto reducer = computations_.find(instruction.called_computation_ids(0));
    return reducer != computations_.end() &&
           ReducerOpcode(*reducer->second, instruction.shape().element_type()) == opcode;
  }

  static bool IsZero(const Scope& scope, const HloInstructionProto& instruction) {
    if (instruction.opcode() == "broadcast" || instruction.opcode() == "reshape" ||
        instruction.opcode() == "convert") {
      return IsZero(scope, scope.Operand(instruction, 0));
    }
    if (instruction.opcode() != "constant") return false;
    const xla::LiteralProto& literal = instruction.literal();
    const auto zero = [](const auto& values) {
      return absl::c_all_of(values, [](auto value) { return value == 0; });
    };
    return literal.f32s_size() + literal.f64s_size() + literal.s32s_size() + literal.s64s_size() +
                   literal.bf16s().size() + literal.f16s().size() >
               0 &&
           zero(literal.f32s()) && zero(literal.f64s()) && zero(literal.s32s()) &&
           zero(literal.s64s()) && zero(literal.bf16s()) && zero(literal.f16s());
  }

  // The stacked form of an instruction that makes one array, if it has one.
  std::optional<StackedValue> StackArray(StackedComputation& out,
                                         const HloInstructionProto& instruction,
                                         const Value& operands) const {
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
      whole->set_limit(stacked_);
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

  // The predicate of a select and the bounds of a clamp may be scalars.
  std::vector<int64_t> Elementwise(StackedComputation& out, const ShapeProto& shape,
                                   const Value& operands) const {
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
                                           const Value& operands) const {
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
    if (!update) Prepend(stacked_, result->mutable_dynamic_slice_sizes());
    return StackedValue{result->id(), true, instruction.shape()};
  }

  std::optional<StackedValue> Dot(StackedComputation& out, const HloInstructionProto& instruction,
                                  const Value& operands) const {
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
      sizes.insert(sizes.begin() + place, stacked_);
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

  std::optional<StackedValue> Gather(StackedComputation& out,
                                     const HloInstructionProto& instruction,
                                     const Value& operands) const {
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
      Prepend(indices ? 1 : stacked_, gather->mutable_gather_slice_sizes());
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

  // All samples of all replicas as one batch.
  static ShapeProto BatchShape(const ShapeProto& shape, int num_stacked) {
    ShapeProto batch = shape;
    batch.set_dimensions(0, num_stacked * shape.dimensions(0));
    return batch;
  }

  std::optional<StackedValue> Convolution(StackedComputation& out,
                                          const HloInstructionProto& instruction,
                                          const Value& operands) const {
    const auto& numbers = instruction.convolution_dimension_numbers();
    if (operands[1].stacked || numbers.input_batch_dimension() != 0 ||
        numbers.output_batch_dimension() != 0 || instruction.batch_group_count() > 1) {
      return std::nullopt;
    }
    const ShapeProto input = BatchShape(operands[0].shape, stacked_);
    const ShapeProto output = BatchShape(instruction.shape(), stacked_);
    const int64_t batch = out.Reshape(operands[0], input).id;
    const int64_t result = out.AddCopy(instruction, output, {batch, operands[1].id})->id();
    return StackedValue{out.Add("reshape", out.StackedShape(instruction.shape()), {result})->id(),
                        true, instruction.shape()};
  }

  // A kernel's call with the samples of all replicas as one batch; the sum over it is one for all.
  std::optional<StackedValue> KernelOfBatch(StackedComputation& out,
                                            const HloInstructionProto& call,
                                            const KernelRoles& roles, const Value& operands) const {
    for (int i = 0; i < static_cast<int>(operands.size()); ++i) {
      if (operands[i].stacked && !absl::c_linear_search(roles.batches, i)) return std::nullopt;
    }
    const ShapeProto result = roles.makes_batch ? BatchShape(call.shape(), stacked_) : call.shape();
    std::vector<int64_t> ids;
    std::vector<ShapeProto> shapes;
    for (int i = 0; i < static_cast<int>(operands.size()); ++i) {
      ShapeProto shape = operands[i].shape;
      int64_t id = operands[i].id;
      if (absl::c_linear_search(roles.batches, i)) {
        shape = BatchShape(shape, stacked_);
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
    return StackedValue{out.Add("reshape", out.StackedShape(call.shape()), {made->id()})->id(),
                        true, call.shape()};
  }

  // Instructions that may make several arrays of one shape's.
  std::optional<Value> StackSeveral(StackedComputation& out, const HloInstructionProto& instruction,
                                    const Value& operands) const {
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
      made = AddOfTuple(out, instruction, results, ids);
      results = ElementsOf(out, made->id(), results);
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

  const HloModuleProto& module_;
  const int stacked_;
  const int num_replicas_;
  const int num_groups_;
  // Whether no replica can go through the program without the others.
  bool meets_ = false;
  absl::flat_hash_map<int64_t, const HloComputationProto*> computations_;
  absl::flat_hash_map<int64_t, bool> acting_computations_;
  int64_t next_id_ = 1;
  int64_t max_id_ = 0;
  // Of loops and branches, callees first.
  std::vector<HloComputationProto> made_;
};

struct Attempt {
  StackedModule stacked;
  // The elements of variables whose replicas come to differ.
  int64_t elements_apart = 0;
};

int64_t NumElements(const ShapeProto& shape) {
  int64_t elements = 1;
  for (int64_t size : shape.dimensions()) elements *= size;
  return elements;
}

// Stacks, with a variable for each replica where the new values differ.
absl::StatusOr<Attempt> Try(const HloModuleProto& module, const StackOptions& options,
                            std::vector<bool> stacked_parameters) {
  Attempt attempt;
  while (true) {
    auto stacked = ReplicaStacker(module, options).Run(stacked_parameters);
    if (!stacked.ok()) return stacked.status();
    bool changed = false;
    for (const auto& [parameter, result] : options.updated_parameters) {
      if (stacked_parameters[parameter] || !stacked->stacked_results[result]) continue;
      stacked_parameters[parameter] = true;
      attempt.elements_apart += NumElements(module.host_program_shape().parameters(parameter));
      changed = true;
    }
    if (changed) continue;
    attempt.stacked = *std::move(stacked);
    return attempt;
  }
}

}  // namespace

absl::StatusOr<StackedModule> StackReplicas(const HloModuleProto& module,
                                            const StackOptions& options) {
  const auto& parameters = module.host_program_shape().parameters();
  std::vector<bool> stacked(parameters.size(), true);
  for (int parameter : options.mirrored_parameters) stacked[parameter] = false;
  auto best = Try(module, options, stacked);
  if (!best.ok()) return best.status();
  if (best->elements_apart > 0) {
    // A number such as a learning rate may be the same for all replicas though nothing says so.
    for (int i = 0; i < parameters.size(); ++i) {
      if (parameters[i].dimensions().empty()) stacked[i] = false;
    }
    auto other = Try(module, options, stacked);
    if (!other.ok()) return other.status();
    if (other->elements_apart < best->elements_apart) best = std::move(other);
  }
  return std::move(best->stacked);
}

int GroupSize(int num_replicas, int num_processors) {
  int groups = std::max(2, num_processors);
  while (groups < num_replicas && num_replicas % groups != 0) ++groups;
  return groups < num_replicas ? num_replicas / groups : 1;
}

}  // namespace tf_tpu_ext
