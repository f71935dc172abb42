// Calls, loops and branches of a group of replicas.
#include <utility>

#include "cc/compiler/replicas/replica_batcher.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {

using xla::HloComputation;
using xla::HloInstruction;

absl::StatusOr<BatchedValues> ReplicaBatcher::Call(Scope& scope, const HloInstruction& call) {
  // Inlined, because different operands may be batches in another call.
  std::vector<BatchedValues> parameters;
  for (const HloInstruction* operand : call.operands()) parameters.push_back(scope.Of(operand));
  return Batch(*call.to_apply(), parameters, scope.out);
}

absl::StatusOr<BatchedValues> ReplicaBatcher::BatchCalled(const HloComputation& called,
                                                          const BatchedValues& like,
                                                          BatchedComputation* out) {
  HloInstruction* parameter = out->Add(HloInstruction::CreateParameter(
      0, out->FlatTupleShape(like), called.parameter_instruction(0)->name()));
  return Batch(called, {out->Elements(parameter, like)}, out);
}

absl::StatusOr<BatchedValues> ReplicaBatcher::While(Scope& scope, const HloInstruction& loop) {
  const HloComputation& condition = *loop.while_condition();
  const HloComputation& body = *loop.while_body();
  BatchedComputation& out = *scope.out;
  BatchedValues state = scope.Of(loop.operand(0));
  BatchedValues like = state;
  // If an iteration makes a value differ between replicas, it must be a batch from the start. So
  // the loop is rebuilt until an iteration changes nothing more.
  while (true) {
    BatchedComputation new_condition(condition.name(), group_size_, &context_);
    TF_ASSIGN_OR_RETURN(const BatchedValues goes_on, BatchCalled(condition, like, &new_condition));
    // Replicas would leave the loop in different iterations.
    if (!IsMirrored(goes_on)) return ForEach(scope, loop);
    BatchedComputation new_body(body.name(), group_size_, &context_);
    TF_ASSIGN_OR_RETURN(BatchedValues next, BatchCalled(body, like, &new_body));
    bool changed = false;
    for (size_t i = 0; i < like.size(); ++i) {
      if (like[i].batched && !next[i].batched) next[i] = new_body.Batch(next[i]);
      changed = changed || like[i].batched != next[i].batched;
      like[i].batched = next[i].batched;
    }
    if (changed) continue;
    for (size_t i = 0; i < like.size(); ++i) {
      if (like[i].batched) state[i] = out.Batch(state[i]);
    }
    HloComputation* condition_made =
        module_->AddEmbeddedComputation(new_condition.Finish(goes_on[0]));
    HloComputation* body_made = module_->AddEmbeddedComputation(new_body.Finish(next));
    return out.Elements(
        out.AddFor(loop, HloInstruction::CreateWhile(out.FlatTupleShape(state), condition_made,
                                                     body_made, out.FlatTuple(state))),
        like);
  }
}

absl::StatusOr<BatchedValues> ReplicaBatcher::Conditional(Scope& scope,
                                                          const HloInstruction& conditional) {
  BatchedComputation& out = *scope.out;
  const BatchedValue branch = scope.Of(conditional.operand(0))[0];
  if (branch.batched) return ForEach(scope, conditional);  // replicas take different branches
  std::vector<BatchedComputation> branches;
  std::vector<BatchedValues> results;
  std::vector<HloInstruction*> arguments;
  for (int i = 0; i < conditional.branch_count(); ++i) {
    const HloComputation& computation = *conditional.branch_computation(i);
    const BatchedValues& argument = scope.Of(conditional.operand(i + 1));
    branches.emplace_back(computation.name(), group_size_, &context_);
    TF_ASSIGN_OR_RETURN(BatchedValues result, BatchCalled(computation, argument, &branches.back()));
    results.push_back(std::move(result));
    arguments.push_back(out.FlatTuple(argument));
  }
  // A result that is a batch in one branch is one in all of them.
  BatchedValues like = results[0];
  for (size_t i = 0; i < like.size(); ++i) {
    for (const BatchedValues& result : results) {
      like[i].batched = like[i].batched || result[i].batched;
    }
  }
  std::vector<HloComputation*> made;
  for (size_t b = 0; b < branches.size(); ++b) {
    for (size_t i = 0; i < like.size(); ++i) {
      if (like[i].batched) results[b][i] = branches[b].Batch(results[b][i]);
    }
    made.push_back(module_->AddEmbeddedComputation(branches[b].Finish(results[b])));
  }
  return out.Elements(
      out.AddFor(conditional, HloInstruction::CreateConditional(
                                  out.FlatTupleShape(like), branch.instruction, made, arguments)),
      like);
}

}  // namespace tf_tpu_ext
