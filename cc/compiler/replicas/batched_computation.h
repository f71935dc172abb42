// Builds an HLO computation whose values stand for those of several replicas.
#ifndef TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCHED_COMPUTATION_H_
#define TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCHED_COMPUTATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "xla/service/hlo.pb.h"

namespace tf_tpu_ext {

// An array: one for all replicas (mirrored), or those of the replicas stacked along a new first
// dimension.
struct StackedValue {
  int64_t id = -1;
  bool stacked = false;
  xla::ShapeProto shape;  // of one replica's array
};

class StackedComputation {
 public:
  // `next_id` numbers the instructions and computations of the module.
  StackedComputation(const std::string& name, int num_stacked, int64_t* next_id);

  int num_stacked() const { return num_stacked_; }

  // The shape of a stack of such arrays.
  xla::ShapeProto StackedShape(const xla::ShapeProto& shape) const;
  // Of the value's instruction.
  xla::ShapeProto ShapeOf(const StackedValue& value) const;

  // Adds an instruction; its operands must have been added before.
  xla::HloInstructionProto* Add(const std::string& opcode, const xla::ShapeProto& shape,
                                absl::Span<const int64_t> operands);
  // Adds a copy of an instruction of the original program, for other operands.
  xla::HloInstructionProto* AddCopy(const xla::HloInstructionProto& original,
                                    const xla::ShapeProto& shape,
                                    absl::Span<const int64_t> operands);

  // The value as a stack.
  StackedValue Stack(const StackedValue& value);
  // One replica's array: a value that stands for itself.
  StackedValue Element(const StackedValue& value, int number);
  // The stack of arrays of one shape, one for each replica.
  StackedValue Join(absl::Span<const StackedValue> elements);
  // The same elements in another shape, which is not that of a stack.
  StackedValue Reshape(const StackedValue& value, const xla::ShapeProto& shape);
  int64_t Constant(xla::PrimitiveType type, int64_t value);

  // A tuple of shape `shape`, which may hold tuples, of all its arrays.
  int64_t Tuple(const xla::ShapeProto& shape, absl::Span<const StackedValue> arrays);
  // The arrays of an instruction of shape `shape`, none of them a stack.
  std::vector<StackedValue> Arrays(int64_t id, const xla::ShapeProto& shape);

  // A tuple of the values, none of which is a tuple; and the values of an instruction of such a
  // shape, each of them a stack if it is one in `like`.
  xla::ShapeProto FlatTupleShape(absl::Span<const StackedValue> values) const;
  int64_t FlatTuple(absl::Span<const StackedValue> values);
  std::vector<StackedValue> Elements(int64_t id, absl::Span<const StackedValue> like);

  // Makes the tuple of the values, none of which is a tuple, the result.
  xla::HloComputationProto Finish(absl::Span<const StackedValue> results);
  // Makes the value the result.
  xla::HloComputationProto Finish(const StackedValue& result);

 private:
  int64_t NextId() { return (*next_id_)++; }
  xla::HloComputationProto Finish(int64_t root, const xla::ShapeProto& shape);

  const int num_stacked_;
  int64_t* const next_id_;
  xla::HloComputationProto computation_;
};

// How many arrays a shape has, and their shapes in order.
int NumArrays(const xla::ShapeProto& shape);
std::vector<xla::ShapeProto> ArrayShapes(const xla::ShapeProto& shape);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCHED_COMPUTATION_H_
