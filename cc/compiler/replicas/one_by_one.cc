// Instructions that are repeated for each replica of a group.
#include <string>
#include <utility>

#include "cc/compiler/replicas/replica_batcher.h"
#include "cc/program/transfer_call.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputation;
using xla::HloInstruction;

// Includes everything that it calls.
int64_t NumInstructions(const HloInstruction& instruction) {
  int64_t instructions = 1;
  for (const HloComputation* callee : instruction.called_computations()) {
    for (const HloInstruction* inner : callee->instructions()) {
      instructions += NumInstructions(*inner);
    }
  }
  return instructions;
}

// Makes a batch of each array that the replicas have computed one by one.
BatchedValues JoinReplicas(BatchedComputation& out, const std::vector<BatchedValues>& replicas) {
  BatchedValues batches;
  for (size_t array = 0; array < replicas[0].size(); ++array) {
    BatchedValues elements;
    for (const BatchedValues& replica : replicas) elements.push_back(replica[array]);
    batches.push_back(out.Join(elements));
  }
  return batches;
}

}  // namespace

absl::StatusOr<BatchedValues> ReplicaBatcher::ForEach(Scope& scope,
                                                      const HloInstruction& instruction) {
  if (!IsRepeatable(instruction, /*random_allowed=*/true)) {
    return Alone(instruction, "it communicates, but not with all replicas at once");
  }
  repeated_ += group_size_ * NumInstructions(instruction);
  if (repeated_ > max_repeated_) return Alone(instruction, "too much is done for each replica");
  BatchedComputation& out = *scope.out;
  std::vector<BatchedValues> replicas;
  for (int j = 0; j < group_size_; ++j) {
    std::vector<HloInstruction*> operands;
    for (const HloInstruction* operand : instruction.operands()) {
      BatchedValues elements;
      for (const BatchedValue& array : scope.Of(operand)) elements.push_back(out.Element(array, j));
      operands.push_back(out.Tuple(operand->shape(), elements));
    }
    replicas.push_back(out.Arrays(out.AddClone(instruction, instruction.shape(), operands)));
  }
  return JoinReplicas(out, replicas);
}

BatchedValues ReplicaBatcher::Feed(BatchedComputation& out, const HloInstruction& instruction,
                                   const TransferCall& transfer,
                                   const BatchedValues& operands) const {
  // The token, which comes last, passes from one replica's call to the next, so the host sees the
  // calls in the order of the replicas.
  HloInstruction* token = operands.back().instruction;
  TransferCall of_member = transfer;
  std::vector<BatchedValues> replicas;
  for (int j = 0; j < group_size_; ++j) {
    std::vector<HloInstruction*> arrays;
    for (size_t i = 0; i + 1 < operands.size(); ++i) {
      arrays.push_back(out.Element(operands[i], j).instruction);
    }
    arrays.push_back(token);
    HloInstruction* call = out.AddClone(instruction, instruction.shape(), arrays);
    of_member.member = j;
    call->set_raw_backend_config_string(Encode(of_member));
    replicas.push_back(out.Arrays(call));
    token = replicas.back().back().instruction;
  }
  for (BatchedValues& replica : replicas) replica.pop_back();
  BatchedValues results = JoinReplicas(out, replicas);
  results.push_back({token, false, operands.back().shape});
  return results;
}

}  // namespace tf_tpu_ext
