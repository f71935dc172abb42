// Reads and checks the constant operands that say which replicas take part in a collective op.
//
// The rules are those of a TPU: `group_assignment` is a matrix whose rows are the groups, and every
// replica of the program occurs in it exactly once; `source_target_pairs` is a [pairs, 2] matrix in
// which a replica is a source at most once and a target at most once.
#ifndef TF_TPU_EXT_CC_OPS_REPLICA_GROUPS_H_
#define TF_TPU_EXT_CC_OPS_REPLICA_GROUPS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tf_tpu_ext {

// One vector of replica numbers per group. All groups have the same size, at least 1.
using ReplicaGroups = std::vector<std::vector<int64_t>>;

// (source replica, target replica).
using SourceTargetPairs = std::vector<std::pair<int64_t, int64_t>>;

// The op whose operand is read, for error messages, and how many replicas its program has.
struct CollectiveContext {
  absl::string_view op;
  int64_t num_replicas;
};

// Parses `group_assignment`, given as its shape and its values in row-major order.
//
// Returns InvalidArgument unless the shape has rank 2 and each replica in
// [0, context.num_replicas) occurs in `values` exactly once.
absl::StatusOr<ReplicaGroups> ParseGroupAssignment(const CollectiveContext& context,
                                                   absl::Span<const int64_t> shape,
                                                   absl::Span<const int64_t> values);

// Parses `source_target_pairs`, given as its shape and its values in row-major order. There may be
// no pairs at all: then every replica receives zeros.
//
// Returns InvalidArgument unless the shape is [pairs, 2], all values are in
// [0, context.num_replicas), and no replica is a source, or a target, twice.
absl::StatusOr<SourceTargetPairs> ParseSourceTargetPairs(const CollectiveContext& context,
                                                         absl::Span<const int64_t> shape,
                                                         absl::Span<const int64_t> values);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_OPS_REPLICA_GROUPS_H_
