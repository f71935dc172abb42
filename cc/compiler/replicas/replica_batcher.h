// Traverses the program of one replica and builds the program of a group.
#ifndef TF_TPU_EXT_CC_COMPILER_REPLICAS_REPLICA_BATCHER_H_
#define TF_TPU_EXT_CC_COMPILER_REPLICAS_REPLICA_BATCHER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cc/compiler/replicas/batch_replicas.h"
#include "cc/compiler/replicas/batched_computation.h"
#include "cc/program/transfer_call.h"
#include "xla/hlo/ir/hlo_clone_context.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace tf_tpu_ext {

// Batches a program once, given which parameters are batches. An array remains mirrored as long as
// it does not differ between replicas (BatchedValue::batched).
class ReplicaBatcher {
 public:
  ReplicaBatcher(const xla::HloModule& module, const BatchOptions& options);

  absl::StatusOr<BatchedModule> Run(const std::vector<bool>& batched_parameters);

 private:
  // A computation of the original program whose batched form is being built.
  struct Scope {
    const BatchedValues& Of(const xla::HloInstruction* instruction) const {
      return values.at(instruction);
    }
    // The arrays of all operands.
    BatchedValues Operands(const xla::HloInstruction& instruction) const;

    BatchedComputation* out = nullptr;
    absl::flat_hash_map<const xla::HloInstruction*, BatchedValues> values;
  };

  // replica_batcher.cc: traversal.

  // Adds the batched form of the computation to `out` and returns its result.
  absl::StatusOr<BatchedValues> Batch(const xla::HloComputation& computation,
                                      const std::vector<BatchedValues>& parameters,
                                      BatchedComputation* out);
  absl::StatusOr<BatchedValues> BatchOne(Scope& scope, const xla::HloInstruction& instruction);
  // Adds an instruction that is computed once because it is the same for all replicas.
  static BatchedValues ForAll(Scope& scope, const xla::HloInstruction& instruction);

  // batched_calls.cc: calls, loops and branches.

  absl::StatusOr<BatchedValues> Call(Scope& scope, const xla::HloInstruction& call);
  absl::StatusOr<BatchedValues> While(Scope& scope, const xla::HloInstruction& loop);
  absl::StatusOr<BatchedValues> Conditional(Scope& scope, const xla::HloInstruction& conditional);
  // Builds a computation whose only parameter is a tuple of the arrays.
  absl::StatusOr<BatchedValues> BatchCalled(const xla::HloComputation& called,
                                            const BatchedValues& like, BatchedComputation* out);

  // batched_collectives.cc: communication between replicas.

  BatchedValues ReplicaId(BatchedComputation& out, const xla::HloInstruction& instruction) const;
  absl::StatusOr<BatchedValues> FirstReplica(Scope& scope, const xla::HloInstruction& slice) const;
  absl::StatusOr<BatchedValues> AllReduce(Scope& scope, const xla::HloInstruction& reduction) const;
  // Combines the value within the group, according to the reducer's opcode.
  BatchedValue Combined(Scope& scope, const xla::HloInstruction& value,
                        xla::HloOpcode opcode) const;
  // The sum of a value over the replicas, if it can be computed without the value of each replica.
  static std::optional<BatchedValue> SumOver(Scope& scope, const xla::HloInstruction& summed);

  // one_by_one.cc: instructions that are repeated for each replica.

  absl::StatusOr<BatchedValues> ForEach(Scope& scope, const xla::HloInstruction& instruction);
  // The infeed or outfeed of each replica.
  BatchedValues Feed(BatchedComputation& out, const xla::HloInstruction& instruction,
                     const TransferCall& transfer, const BatchedValues& operands) const;

  const xla::HloModule& original_;
  const int group_size_;
  const int num_replicas_;
  const int num_groups_;
  // Whether no replica can run through the program without the others.
  bool meets_ = false;
  // The number of instructions that are repeated for each replica, and the limit.
  int64_t repeated_ = 0;
  int64_t max_repeated_ = 0;
  std::unique_ptr<xla::HloModule> module_;
  // Copies from the original module to the new one.
  xla::HloCloneContext context_;
};

// An error that says why the program must run separately for each replica.
absl::Status Alone(const xla::HloInstruction& instruction, absl::string_view why);

bool IsMirrored(const BatchedValues& values);

// Whether the instruction, with everything it calls, does the same wherever it runs, and, unless
// random numbers are allowed, whenever it runs.
bool IsRepeatable(const xla::HloInstruction& instruction, bool random_allowed);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_REPLICAS_REPLICA_BATCHER_H_
