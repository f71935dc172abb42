// Builds an HLO computation whose values are those of several replicas.
#ifndef TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCHED_COMPUTATION_H_
#define TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCHED_COMPUTATION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "xla/hlo/ir/hlo_clone_context.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/shape.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {

// Either one array for all replicas (mirrored), or the replicas' arrays along a new first
// dimension, the batch.
struct BatchedValue {
  xla::HloInstruction* instruction = nullptr;
  bool batched = false;
  xla::Shape shape;  // of one replica's array
};

// The arrays of an instruction, in order. There are several if it produces a tuple.
using BatchedValues = std::vector<BatchedValue>;

class BatchedComputation {
 public:
  // `context` belongs to the new module, to which the original's reducers are copied.
  BatchedComputation(absl::string_view name, int batch_size, xla::HloCloneContext* context)
      : batch_size_(batch_size), context_(context), builder_(name) {}

  int batch_size() const { return batch_size_; }

  // The shape of a batch of arrays of this shape.
  xla::Shape BatchedShape(const xla::Shape& shape) const;
  // The shape of the value's instruction.
  xla::Shape ShapeOf(const BatchedValue& value) const;

  xla::HloInstruction* Add(std::unique_ptr<xla::HloInstruction> instruction);
  // Adds an instruction that replaces one of the original program.
  xla::HloInstruction* AddFor(const xla::HloInstruction& original,
                              std::unique_ptr<xla::HloInstruction> instruction);
  // Adds a copy of an instruction of the original program with other operands.
  xla::HloInstruction* AddClone(const xla::HloInstruction& original, const xla::Shape& shape,
                                absl::Span<xla::HloInstruction* const> operands);
  // Copies a computation of the original program to the new one.
  xla::HloComputation* Clone(xla::HloComputation* original);

  // Returns the value as a batch.
  BatchedValue Batch(const BatchedValue& value);
  // Returns one replica's array.
  BatchedValue Element(const BatchedValue& value, int number);
  // Makes a batch of arrays of the same shape, one for each replica.
  BatchedValue Join(absl::Span<const BatchedValue> elements);
  // Returns the same elements in another shape.
  xla::HloInstruction* Reshape(const BatchedValue& value, const xla::Shape& shape);
  xla::HloInstruction* Constant(xla::PrimitiveType type, int64_t value);

  // Packs all arrays into a tuple of this shape, which may be nested.
  xla::HloInstruction* Tuple(const xla::Shape& shape, absl::Span<const BatchedValue> arrays);
  // The arrays of an instruction, none of which is a batch.
  BatchedValues Arrays(xla::HloInstruction* instruction);

  // A tuple of the values, none of which is itself a tuple, and its shape. Elements() returns the
  // values of an instruction of that shape. Each is a batch if it is one in `like`.
  xla::Shape FlatTupleShape(absl::Span<const BatchedValue> values) const;
  xla::HloInstruction* FlatTuple(absl::Span<const BatchedValue> values);
  BatchedValues Elements(xla::HloInstruction* instruction, absl::Span<const BatchedValue> like);

  // Makes the tuple of the values, none of which is itself a tuple, the result.
  std::unique_ptr<xla::HloComputation> Finish(absl::Span<const BatchedValue> results);
  // Makes the value the result.
  std::unique_ptr<xla::HloComputation> Finish(const BatchedValue& result);

 private:
  const int batch_size_;
  xla::HloCloneContext* const context_;
  xla::HloComputation::Builder builder_;
};

// The shapes of the arrays of a shape, in order.
std::vector<xla::Shape> ArrayShapes(const xla::Shape& shape);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCHED_COMPUTATION_H_
