#include "cc/compiler/replicas/batch_replicas.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cc/compiler/hlo/collective_patterns.h"
#include "cc/compiler/hlo/instruction_table.h"
#include "cc/compiler/replicas/batched_computation.h"
#include "cc/compiler/replicas/batching_rules.h"
#include "cc/program/transfer_call.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputationProto;
using xla::HloInstructionProto;
using xla::HloModuleProto;
using xla::ShapeProto;

// The arrays of an instruction, which has several if it is a tuple.
using Value = std::vector<StackedValue>;

// What is done for each replica may have so many times the instructions of the whole program, and
// so many more: past that, compiling it would cost more than stacking saves.
constexpr int64_t kMaxGrowth = 4;
constexpr int64_t kFreeGrowth = 1000;

absl::Status Alone(const HloInstructionProto& instruction, const std::string& why) {
  return absl::UnimplementedError(
      absl::StrCat(why, ": ", instruction.name(), " (", instruction.opcode(), ")"));
}

bool IsFloat(const HloInstructionProto& instruction) {
  switch (instruction.shape().element_type()) {
    case xla::F16:
    case xla::BF16:
    case xla::F32:
    case xla::F64:
      return true;
    default:
      return false;
  }
}

// The transfer that a custom call makes, if it makes one.
std::optional<TransferCall> TransferOf(const HloInstructionProto& instruction) {
  if (instruction.custom_call_target() != kTransferTarget) return std::nullopt;
  absl::StatusOr<TransferCall> call = DecodeTransferCall(instruction.backend_config());
  if (!call.ok()) return std::nullopt;
  return *std::move(call);
}

// Takes a batch from the core's infeed.
bool IsInfeed(const HloInstructionProto& instruction) {
  const std::optional<TransferCall> transfer = TransferOf(instruction);
  return transfer.has_value() && transfer->is_infeed();
}

bool IsOutfeed(const HloInstructionProto& instruction) {
  const std::optional<TransferCall> transfer = TransferOf(instruction);
  return transfer.has_value() && transfer->is_outfeed();
}

class ReplicaStacker {
 public:
  ReplicaStacker(const HloModuleProto& module, const StackOptions& options)
      : module_(module),
        stacked_(options.group_size),
        num_replicas_(options.num_replicas),
        num_groups_(options.num_replicas / options.group_size),
        next_id_(FirstFreeId(module)) {
    int64_t num_instructions = 0;
    for (const HloComputationProto& computation : module.computations()) {
      computations_[computation.id()] = &computation;
      num_instructions += computation.instructions_size();
      for (const HloInstructionProto& instruction : computation.instructions()) {
        meets_ = meets_ || instruction.opcode() == "all-reduce";
      }
    }
    max_repeated_ = kMaxGrowth * num_instructions + kFreeGrowth;
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
    stacked.group_size = stacked_;
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
    explicit Scope(const HloComputationProto& computation)
        : instructions(InstructionsOf(computation)) {}
    const HloInstructionProto& Operand(const HloInstructionProto& instruction, int number) const {
      return *instructions.at(LocalId(instruction.operand_ids(number)));
    }

    const InstructionTable instructions;
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
    if (Communicates(instruction) || (!random && IsRandom(instruction))) return false;
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
    std::optional<Value> stacked = StackForAll(instruction, operands, scope.out);
    if (stacked.has_value()) return *std::move(stacked);
    return ForEach(scope, instruction);
  }

  Value ElementOfTuple(const Scope& scope, const HloInstructionProto& instruction,
                       const Value& arrays) const {
    const ShapeProto& shape = scope.Operand(instruction, 0).shape();
    int begin = 0;
    for (int i = 0; i < instruction.tuple_index(); ++i) begin += NumArrays(shape.tuple_shapes(i));
    const int count = NumArrays(shape.tuple_shapes(instruction.tuple_index()));
    return Value(arrays.begin() + begin, arrays.begin() + begin + count);
  }

  static Value Barrier(StackedComputation& out, const HloInstructionProto& instruction,
                       const Value& operands) {
    const HloInstructionProto* barrier =
        out.AddCopy(instruction, out.FlatTupleShape(operands), {out.FlatTuple(operands)});
    return out.Elements(barrier->id(), operands);
  }

  Value ReplicaId(StackedComputation& out, const HloInstructionProto& instruction) const {
    const ShapeProto& scalar = instruction.shape();
    const ShapeProto all = out.StackedShape(scalar);
    if (num_groups_ == 1) {
      HloInstructionProto* numbers = out.Add("iota", all, {});
      numbers->add_dimensions(0);
      return {{numbers->id(), true, scalar}};
    }
    const int64_t group = out.AddCopy(instruction, scalar, {})->id();
    const int64_t size = out.Constant(scalar.element_type(), stacked_);
    const int64_t first = out.Add("multiply", scalar, {group, size})->id();
    HloInstructionProto* offsets = out.Add("iota", all, {});
    offsets->add_dimensions(0);
    const int64_t firsts = out.Stack({first, false, scalar}).id;
    return {{out.Add("add", all, {firsts, offsets->id()})->id(), true, scalar}};
  }

  // Stacks each array of what the replicas have made one by one.
  static Value JoinReplicas(StackedComputation& out, const std::vector<Value>& replicas) {
    Value stacks;
    for (size_t array = 0; array < replicas[0].size(); ++array) {
      Value elements;
      for (const Value& replica : replicas) elements.push_back(replica[array]);
      stacks.push_back(out.Join(elements));
    }
    return stacks;
  }

  // Each replica's infeed or outfeed, one after the other.
  Value Feed(StackedComputation& out, const HloInstructionProto& instruction,
             const Value& operands) const {
    TransferCall transfer = *TransferOf(instruction);
    int64_t token = operands.back().id;
    std::vector<Value> replicas;
    for (int j = 0; j < stacked_; ++j) {
      std::vector<int64_t> ids;
      for (size_t i = 0; i + 1 < operands.size(); ++i) {
        ids.push_back(out.Element(operands[i], j).id);
      }
      ids.push_back(token);
      HloInstructionProto* call = out.AddCopy(instruction, instruction.shape(), ids);
      transfer.member = j;
      call->set_backend_config(Encode(transfer));
      replicas.push_back(out.Arrays(call->id(), instruction.shape()));
      token = replicas.back().back().id;
    }
    for (Value& replica : replicas) replica.pop_back();
    Value results = JoinReplicas(out, replicas);
    results.push_back({token, false, operands.back().shape});
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

  // With all that it calls.
  int64_t NumInstructions(const HloInstructionProto& instruction) const {
    int64_t instructions = 1;
    for (int64_t id : instruction.called_computation_ids()) {
      for (const HloInstructionProto& inner : computations_.at(id)->instructions()) {
        instructions += NumInstructions(inner);
      }
    }
    return instructions;
  }

  // What there is no other way for is computed for one replica after the other.
  absl::StatusOr<Value> ForEach(Scope& scope, const HloInstructionProto& instruction) {
    if (!IsPure(instruction, /*random=*/true)) {
      return Alone(instruction, "it communicates, not with all replicas at once");
    }
    repeated_ += stacked_ * NumInstructions(instruction);
    if (repeated_ > max_repeated_) return Alone(instruction, "too much is done for each replica");
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
    return JoinReplicas(out, replicas);
  }

  absl::StatusOr<Value> Call(const HloInstructionProto& instruction, Scope& scope) {
    std::vector<Value> parameters;
    for (int64_t id : instruction.operand_ids()) parameters.push_back(scope.values.at(LocalId(id)));
    return Stack(*computations_.at(instruction.called_computation_ids(0)), parameters, scope.out);
  }

  // Makes a computation with a tuple of the arrays as its only parameter.
  absl::StatusOr<Value> StackCalled(int64_t id, const Value& like, StackedComputation* out) {
    HloInstructionProto* parameter = out->Add("parameter", out->FlatTupleShape(like), {});
    parameter->set_parameter_number(0);
    return Stack(*computations_.at(id), {out->Elements(parameter->id(), like)}, out);
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
      HloInstructionProto* loop =
          out.AddCopy(instruction, out.FlatTupleShape(state), {out.FlatTuple(state)});
      loop->clear_called_computation_ids();
      loop->add_called_computation_ids(finished_body.id());
      loop->add_called_computation_ids(finished_condition.id());
      loop->clear_backend_config();
      made_.push_back(finished_condition);
      made_.push_back(finished_body);
      return out.Elements(loop->id(), like);
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
      operands.push_back(out.FlatTuple(argument));
    }
    Value like = results[0];
    for (size_t i = 0; i < like.size(); ++i) {
      for (const Value& result : results) like[i].stacked = like[i].stacked || result[i].stacked;
    }
    HloInstructionProto* conditional = out.AddCopy(instruction, out.FlatTupleShape(like), operands);
    conditional->clear_called_computation_ids();
    for (size_t b = 0; b < branches.size(); ++b) {
      for (size_t i = 0; i < like.size(); ++i) {
        if (like[i].stacked) results[b][i] = branches[b].Stack(results[b][i]);
      }
      made_.push_back(branches[b].Finish(results[b]));
      conditional->add_called_computation_ids(made_.back().id());
    }
    return out.Elements(conditional->id(), like);
  }

  absl::StatusOr<Value> FirstReplica(Scope& scope, const HloInstructionProto& instruction) const {
    const HloInstructionProto* first =
        FirstReplicasValue(instruction, scope.instructions, num_replicas_);
    if (first == nullptr) return Alone(instruction, "an exchange between replicas");
    StackedComputation& out = *scope.out;
    const StackedValue value = scope.values.at(LocalId(first->id()))[0];
    if (!value.stacked) return Value{value};
    if (num_groups_ == 1) return Value{out.Element(value, 0)};
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
    if (num_groups_ == 1) return Value{*combined};
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
    if (opcode == "multiply" || (opcode == "divide" && !operand(1).stacked && IsFloat(summed))) {
      const int factor = operand(1).stacked ? 0 : 1;
      if (operand(factor).stacked) return std::nullopt;
      auto sum = SumOver(scope, scope.Operand(summed, 1 - factor));
      if (!sum.has_value()) return std::nullopt;
      std::vector<int64_t> ids = {sum->id, sum->id};
      ids[factor] = operand(factor).id;
      return made(out.AddCopy(summed, summed.shape(), ids));
    }
    const bool adds = !summed.called_computation_ids().empty() && ReducesBy(summed, "add");
    const bool from_zero = adds && IsZero(scope, scope.Operand(summed, opcode == "reduce" ? 1 : 0));
    return SumOfReplicas(summed, Operands(scope, summed), from_zero, &out);
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

  const HloModuleProto& module_;
  const int stacked_;
  const int num_replicas_;
  const int num_groups_;
  // Whether no replica can go through the program without the others.
  bool meets_ = false;
  absl::flat_hash_map<int64_t, const HloComputationProto*> computations_;
  absl::flat_hash_map<int64_t, bool> acting_computations_;
  int64_t next_id_;
  // Instructions that are there for each replica, and how many may be.
  int64_t repeated_ = 0;
  int64_t max_repeated_ = 0;
  // Of loops and branches, callees first.
  std::vector<HloComputationProto> made_;
};

struct Attempt {
  StackedModule stacked;
  // The elements of variables whose replicas come to differ.
  int64_t elements_apart = 0;
};

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

}  // namespace tf_tpu_ext
