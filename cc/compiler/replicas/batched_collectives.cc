// Communication between the replicas of a group, and with other groups.
#include <utility>

#include "cc/compiler/hlo/collective_patterns.h"
#include "cc/compiler/replicas/batching_rules.h"
#include "cc/compiler/replicas/replica_batcher.h"
#include "xla/primitive_util.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

// Whether a reduction may take its values in any order.
bool IsAssociative(HloOpcode opcode) {
  switch (opcode) {
    case HloOpcode::kAdd:
    case HloOpcode::kAnd:
    case HloOpcode::kMaximum:
    case HloOpcode::kMinimum:
    case HloOpcode::kMultiply:
    case HloOpcode::kOr:
    case HloOpcode::kXor:
      return true;
    default:
      return false;
  }
}

}  // namespace

BatchedValues ReplicaBatcher::ReplicaId(BatchedComputation& out,
                                        const HloInstruction& instruction) const {
  const xla::Shape& scalar = instruction.shape();
  const xla::Shape all = out.BatchedShape(scalar);
  HloInstruction* in_group = out.Add(HloInstruction::CreateIota(all, /*iota_dimension=*/0));
  if (num_groups_ == 1) return {{in_group, true, scalar}};
  HloInstruction* group = out.AddClone(instruction, scalar, {});
  HloInstruction* size = out.Constant(scalar.element_type(), group_size_);
  HloInstruction* first =
      out.Add(HloInstruction::CreateBinary(scalar, HloOpcode::kMultiply, group, size));
  const BatchedValue firsts = out.Batch({first, false, scalar});
  return {
      {out.Add(HloInstruction::CreateBinary(all, HloOpcode::kAdd, firsts.instruction, in_group)),
       true, scalar}};
}

absl::StatusOr<BatchedValues> ReplicaBatcher::FirstReplica(Scope& scope,
                                                           const HloInstruction& slice) const {
  const HloInstruction* first = FirstReplicasValue(slice, num_replicas_);
  if (first == nullptr) return Alone(slice, "an exchange between replicas");
  BatchedComputation& out = *scope.out;
  const BatchedValue value = scope.Of(first)[0];
  if (!value.batched) return BatchedValues{value};
  const BatchedValue of_group = out.Element(value, 0);
  if (num_groups_ == 1) return BatchedValues{of_group};
  // The same exchange between the groups.
  const HloInstruction& exchange = *slice.operand(0);
  const HloInstruction& pieces = *exchange.operand(0);
  const int64_t split = pieces.concatenate_dimension();
  xla::Shape shape = pieces.shape();
  shape.set_dimensions(split, num_groups_ * first->shape().dimensions(split));
  const std::vector<HloInstruction*> copies(num_groups_, of_group.instruction);
  HloInstruction* joined =
      out.AddFor(pieces, HloInstruction::CreateConcatenate(shape, copies, split));
  HloInstruction* sent =
      out.AddFor(exchange, HloInstruction::CreateAllToAll(shape, {joined}, AllReplicas(num_groups_),
                                                          /*constrain_layout=*/false,
                                                          /*channel_id=*/std::nullopt, split));
  return BatchedValues{{out.AddClone(slice, slice.shape(), {sent}), false, slice.shape()}};
}

absl::StatusOr<BatchedValues> ReplicaBatcher::AllReduce(Scope& scope,
                                                        const HloInstruction& reduction) const {
  if (reduction.operand_count() != 1 || !MeetsAllReplicas(reduction, num_replicas_)) {
    return Alone(reduction, "an exchange between some of the replicas");
  }
  const std::optional<HloOpcode> opcode =
      ReducerOpcode(*reduction.to_apply(), reduction.shape().element_type());
  if (!opcode.has_value() || !IsAssociative(*opcode)) {
    return Alone(reduction, "an unusual reduction");
  }
  const BatchedValue combined = Combined(scope, *reduction.operand(0), *opcode);
  if (num_groups_ == 1) return BatchedValues{combined};
  BatchedComputation& out = *scope.out;
  return BatchedValues{
      {out.AddFor(reduction, HloInstruction::CreateAllReduce(
                                 reduction.shape(), {combined.instruction},
                                 out.Clone(reduction.to_apply()), AllReplicas(num_groups_),
                                 /*constrain_layout=*/false, /*channel_id=*/std::nullopt,
                                 /*use_global_device_ids=*/false)),
       false, reduction.shape()}};
}

BatchedValue ReplicaBatcher::Combined(Scope& scope, const HloInstruction& value,
                                      HloOpcode opcode) const {
  if (opcode == HloOpcode::kAdd) {
    if (const std::optional<BatchedValue> sum = SumOver(scope, value)) return *sum;
  }
  BatchedComputation& out = *scope.out;
  // A mirrored value, too, counts once for each replica.
  const BatchedValue replicas = scope.Of(&value)[0];
  BatchedValue combined = out.Element(replicas, 0);
  for (int j = 1; j < group_size_; ++j) {
    combined.instruction = out.Add(HloInstruction::CreateBinary(
        combined.shape, opcode, combined.instruction, out.Element(replicas, j).instruction));
  }
  return combined;
}

std::optional<BatchedValue> ReplicaBatcher::SumOver(Scope& scope, const HloInstruction& summed) {
  const BatchedValues& value = scope.Of(&summed);
  // Gradients are often scaled and transposed between a product and the sum. The sum moves through
  // linear instructions to one that can itself sum over the batch.
  // If the value has other users, each replica's value is needed anyway.
  if (value.size() != 1 || !value[0].batched || summed.user_count() != 1) return std::nullopt;
  BatchedComputation& out = *scope.out;
  const HloOpcode opcode = summed.opcode();
  if (opcode == HloOpcode::kReshape || opcode == HloOpcode::kTranspose ||
      opcode == HloOpcode::kNegate || opcode == HloOpcode::kCopy) {
    const std::optional<BatchedValue> sum = SumOver(scope, *summed.operand(0));
    if (!sum.has_value()) return std::nullopt;
    return BatchedValue{out.AddClone(summed, summed.shape(), {sum->instruction}), false,
                        summed.shape()};
  }
  // Integer quotients are rounded individually.
  const bool divides = opcode == HloOpcode::kDivide &&
                       xla::primitive_util::IsFloatingPointType(summed.shape().element_type());
  if (opcode == HloOpcode::kMultiply || divides) {
    // A factor that is the same for all replicas is applied after the sum.
    const BatchedValue right = scope.Of(summed.operand(1))[0];
    const int factor = right.batched && !divides ? 0 : 1;
    const BatchedValue same = scope.Of(summed.operand(factor))[0];
    if (same.batched) return std::nullopt;
    const std::optional<BatchedValue> sum = SumOver(scope, *summed.operand(1 - factor));
    if (!sum.has_value()) return std::nullopt;
    std::vector<HloInstruction*> operands = {sum->instruction, sum->instruction};
    operands[factor] = same.instruction;
    return BatchedValue{out.AddClone(summed, summed.shape(), operands), false, summed.shape()};
  }
  return SumOfReplicas(summed, scope.Operands(summed), AddsToZero(summed), &out);
}

}  // namespace tf_tpu_ext
