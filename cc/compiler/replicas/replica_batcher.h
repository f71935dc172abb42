// Walks through the program of one replica and makes that of a group.
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

// Batches a program once, for parameters of which it is known which are batches. An array that has
// not come to differ between replicas stays one for all of them (BatchedValue::batched).
class ReplicaBatcher {
 public:
  ReplicaBatcher(const xla::HloModule& module, const BatchOptions& options);

  absl::StatusOr<BatchedModule> Run(const std::vector<bool>& batched_parameters);

 private:
  // A computation of the original program, as its batched form is made.
  struct Scope {
    const BatchedValues& Of(const xla::HloInstruction* instruction) const {
      return values.at(instruction);
    }
    // The arrays of all operands.
    BatchedValues Operands(const xla::HloInstruction& instruction) const;

    BatchedComputation* out = nullptr;
    absl::flat_hash_map<const xla::HloInstruction*, BatchedValues> values;
  };

  // replica_batcher.cc: the walk.

  // Adds the computation's batched form to `out` and returns its result.
  absl::StatusOr<BatchedValues> Batch(const xla::HloComputation& computation,
                                      const std::vector<BatchedValues>& parameters,
                                      BatchedComputation* out);
  absl::StatusOr<BatchedValues> BatchOne(Scope& scope, const xla::HloInstruction& instruction);
  // What is the same for all replicas is computed once.
  static BatchedValues ForAll(Scope& scope, const xla::HloInstruction& instruction);

  // batched_calls.cc: calls, loops and branches.

  absl::StatusOr<BatchedValues> Call(Scope& scope, const xla::HloInstruction& call);
  absl::StatusOr<BatchedValues> While(Scope& scope, const xla::HloInstruction& loop);
  absl::StatusOr<BatchedValues> Conditional(Scope& scope, const xla::HloInstruction& conditional);
  // Makes a computation with a tuple of the arrays as its only parameter.
  absl::StatusOr<BatchedValues> BatchCalled(const xla::HloComputation& called,
                                            const BatchedValues& like, BatchedComputation* out);

  // batched_collectives.cc: what replicas do together.

  BatchedValues ReplicaId(BatchedComputation& out, const xla::HloInstruction& instruction) const;
  absl::StatusOr<BatchedValues> FirstReplica(Scope& scope, const xla::HloInstruction& slice) const;
  absl::StatusOr<BatchedValues> AllReduce(Scope& scope, const xla::HloInstruction& reduction) const;
  // The value of the group, by the reducer's opcode.
  BatchedValue Combined(Scope& scope, const xla::HloInstruction& value,
                        xla::HloOpcode opcode) const;
  // The sum of a value over the replicas, where there is a way to it that does not need the value
  // of each replica.
  static std::optional<BatchedValue> SumOver(Scope& scope, const xla::HloInstruction& summed);

  // one_by_one.cc: what is done for one replica after the other.

  absl::StatusOr<BatchedValues> ForEach(Scope& scope, const xla::HloInstruction& instruction);
  // Each replica's infeed or outfeed.
  BatchedValues Feed(BatchedComputation& out, const xla::HloInstruction& instruction,
                     const TransferCall& transfer, const BatchedValues& operands) const;

  const xla::HloModule& original_;
  const int group_size_;
  const int num_replicas_;
  const int num_groups_;
  // Whether no replica can go through the program without the others.
  bool meets_ = false;
  // Instructions that are there for each replica, and how many may be.
  int64_t repeated_ = 0;
  int64_t max_repeated_ = 0;
  std::unique_ptr<xla::HloModule> module_;
  // From the original to the new module.
  xla::HloCloneContext context_;
};

// An error: why the program must run for each replica alone.
absl::Status Alone(const xla::HloInstruction& instruction, absl::string_view why);

bool IsMirrored(const BatchedValues& values);

// Whether the instruction, with all that it calls, does the same wherever it runs; and, if random
// numbers are not allowed, whenever.
bool IsRepeatable(const xla::HloInstruction& instruction, bool random_allowed);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_REPLICAS_REPLICA_BATCHER_H_
