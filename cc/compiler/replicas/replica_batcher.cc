#include "cc/compiler/replicas/replica_batcher.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc/compiler/hlo/module.h"
#include "cc/compiler/hlo/purity.h"
#include "cc/compiler/replicas/batching_rules.h"
#include "xla/hlo/transforms/simplifiers/hlo_dce.h"
#include "xla/hlo/utils/hlo_query.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

// Repeating instructions for each replica may add up to kMaxGrowth times the whole program's
// instructions plus kFreeGrowth. Beyond that, compiling them would cost more than batching saves.
constexpr int64_t kMaxGrowth = 4;
constexpr int64_t kFreeGrowth = 1000;

// The exchange with the host that a custom call performs, or nothing if it is another call.
std::optional<TransferCall> TransferOf(const HloInstruction& instruction) {
  if (!instruction.IsCustomCall(kTransferTarget)) return std::nullopt;
  absl::StatusOr<TransferCall> call = DecodeTransferCall(instruction.raw_backend_config_string());
  if (!call.ok()) return std::nullopt;
  return *std::move(call);
}

BatchedValues ElementOfTuple(const HloInstruction& instruction, const BatchedValues& arrays) {
  const xla::Shape& shape = instruction.operand(0)->shape();
  int64_t begin = 0;
  for (int i = 0; i < instruction.tuple_index(); ++i) {
    begin += xla::ShapeUtil::GetLeafCount(shape.tuple_shapes(i));
  }
  const int64_t count = xla::ShapeUtil::GetLeafCount(instruction.shape());
  return BatchedValues(arrays.begin() + begin, arrays.begin() + begin + count);
}

BatchedValues Barrier(BatchedComputation& out, const HloInstruction& instruction,
                      const BatchedValues& operands) {
  return out.Elements(
      out.AddClone(instruction, out.FlatTupleShape(operands), {out.FlatTuple(operands)}), operands);
}

}  // namespace

absl::Status Alone(const HloInstruction& instruction, absl::string_view why) {
  return absl::UnimplementedError(absl::StrCat(why, ": ", instruction.name(), " (",
                                               xla::HloOpcodeString(instruction.opcode()), ")"));
}

bool IsMirrored(const BatchedValues& values) {
  return absl::c_none_of(values, [](const BatchedValue& value) { return value.batched; });
}

bool IsRepeatable(const HloInstruction& instruction, bool random_allowed) {
  return HoldsWithCallees(instruction, [random_allowed](const HloInstruction& inner) {
    const Purity purity = PurityOf(inner);
    return purity == Purity::kPure || (random_allowed && purity == Purity::kRandom);
  });
}

BatchedValues ReplicaBatcher::Scope::Operands(const HloInstruction& instruction) const {
  BatchedValues operands;
  for (const HloInstruction* operand : instruction.operands()) {
    for (const BatchedValue& array : Of(operand)) operands.push_back(array);
  }
  return operands;
}

ReplicaBatcher::ReplicaBatcher(const xla::HloModule& module, const BatchOptions& options)
    : original_(module),
      group_size_(options.group_size),
      num_replicas_(options.num_replicas),
      num_groups_(options.num_replicas / options.group_size),
      max_repeated_(kMaxGrowth * module.instruction_count() + kFreeGrowth),
      module_(EmptyModuleLike(module)),
      context_(module_.get()) {
  for (const HloComputation* computation : module.computations()) {
    meets_ =
        meets_ || xla::hlo_query::ContainsInstrWithOpcode(computation, {HloOpcode::kAllReduce});
  }
}

absl::StatusOr<BatchedModule> ReplicaBatcher::Run(const std::vector<bool>& batched_parameters) {
  const HloComputation& entry = *original_.entry_computation();
  BatchedComputation out(entry.name(), group_size_, &context_);
  std::vector<BatchedValues> parameters;
  for (const HloInstruction* original : entry.parameter_instructions()) {
    const int number = static_cast<int>(original->parameter_number());
    BatchedValue value = {nullptr, batched_parameters[number], original->shape()};
    value.instruction = out.AddFor(
        *original, HloInstruction::CreateParameter(number, out.ShapeOf(value), original->name()));
    parameters.push_back({value});
  }
  TF_ASSIGN_OR_RETURN(const BatchedValues results, Batch(entry, parameters, &out));
  BatchedModule batched;
  batched.group_size = group_size_;
  batched.batched_parameters = batched_parameters;
  for (const BatchedValue& result : results) batched.batched_results.push_back(result.batched);
  AddEntry(out.Finish(results), module_.get());
  // Removes values of single replicas whose sum is computed in another way, and abandoned attempts.
  TF_RETURN_IF_ERROR(xla::HloDCE().Run(module_.get()).status());
  batched.module = std::move(module_);
  return batched;
}

absl::StatusOr<BatchedValues> ReplicaBatcher::Batch(const HloComputation& computation,
                                                    const std::vector<BatchedValues>& parameters,
                                                    BatchedComputation* out) {
  Scope scope;
  scope.out = out;
  for (const HloInstruction* instruction : computation.MakeInstructionPostOrder()) {
    if (instruction->opcode() == HloOpcode::kParameter) {
      scope.values[instruction] = parameters[instruction->parameter_number()];
      continue;
    }
    TF_ASSIGN_OR_RETURN(scope.values[instruction], BatchOne(scope, *instruction));
  }
  return scope.Of(computation.root_instruction());
}

// The order matters: instructions that are handled first are neither mirrored nor batched by a rule
// as a whole.
absl::StatusOr<BatchedValues> ReplicaBatcher::BatchOne(Scope& scope,
                                                       const HloInstruction& instruction) {
  // The required order would have to hold between everything that the two instructions turn into.
  if (!instruction.control_predecessors().empty()) {
    return Alone(instruction, "an instruction that waits for others");
  }
  if (instruction.shape().is_dynamic()) return Alone(instruction, "a dynamic size");
  // Left to the slice that takes the first replica's value from it, which looks through it.
  if (instruction.opcode() == HloOpcode::kAllToAll) return BatchedValues{BatchedValue()};
  BatchedValues operands = scope.Operands(instruction);
  for (const BatchedValue& operand : operands) {
    if (operand.instruction != nullptr) continue;
    if (instruction.opcode() == HloOpcode::kSlice) return FirstReplica(scope, instruction);
    return Alone(instruction, "an exchange between replicas");
  }
  // Infeeds are repeated, and outfeeds if replicas wait for each other anyway. Host code that waits
  // for any other effect of one replica might make another replica wait.
  const std::optional<TransferCall> transfer = TransferOf(instruction);
  if (transfer.has_value() && (transfer->is_infeed() || (transfer->is_outfeed() && meets_))) {
    return Feed(*scope.out, instruction, *transfer, operands);
  }
  switch (instruction.opcode()) {
    case HloOpcode::kAfterAll:
      return ForAll(scope, instruction);
    case HloOpcode::kTuple:
      return operands;
    case HloOpcode::kOptimizationBarrier:
      return Barrier(*scope.out, instruction, operands);
    case HloOpcode::kSetDimensionSize:
      return BatchedValues{operands[0]};  // stays static: set to its full size
    case HloOpcode::kGetTupleElement:
      return ElementOfTuple(instruction, operands);
    case HloOpcode::kReplicaId:
      return ReplicaId(*scope.out, instruction);
    case HloOpcode::kAllReduce:
      return AllReduce(scope, instruction);
    default:
      break;
  }
  if (IsMirrored(operands) && IsRepeatable(instruction, /*random_allowed=*/false)) {
    return ForAll(scope, instruction);
  }
  switch (instruction.opcode()) {
    case HloOpcode::kCall:
      return Call(scope, instruction);
    case HloOpcode::kWhile:
      return While(scope, instruction);
    case HloOpcode::kConditional:
      return Conditional(scope, instruction);
    default:
      break;
  }
  if (PurityOf(instruction) == Purity::kImpure) {
    return Alone(instruction, "it acts outside of its replica");
  }
  std::optional<BatchedValues> batched = BatchInstruction(instruction, operands, scope.out);
  if (batched.has_value()) return *std::move(batched);
  return ForEach(scope, instruction);
}

BatchedValues ReplicaBatcher::ForAll(Scope& scope, const HloInstruction& instruction) {
  BatchedComputation& out = *scope.out;
  std::vector<HloInstruction*> operands;
  for (const HloInstruction* operand : instruction.operands()) {
    operands.push_back(out.Tuple(operand->shape(), scope.Of(operand)));
  }
  return out.Arrays(out.AddClone(instruction, instruction.shape(), operands));
}

}  // namespace tf_tpu_ext
