#include "cc/ops/replica_groups.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_tpu_ext {
namespace {

// Keeps messages readable even for a pod's worth of replicas.
constexpr size_t kMaxListed = 16;

std::string List(absl::Span<const int64_t> values) {
  const absl::string_view rest = values.size() > kMaxListed ? ", ..." : "";
  return absl::StrCat("[", absl::StrJoin(values.subspan(0, kMaxListed), ", "), rest, "]");
}

template <class... Args>
absl::Status Invalid(const CollectiveContext& context, const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(context.op, ": ", args...));
}

absl::Status UnknownReplica(const CollectiveContext& context, absl::string_view operand,
                            int64_t replica) {
  if (context.num_replicas == 1) {
    return Invalid(context, operand, " names replica ", replica,
                   ", but this computation has one replica, number 0. Collective ops across "
                   "several replicas need tpu.replicate: run the computation through "
                   "tf.compat.v1.tpu.replicate or tf.distribute.TPUStrategy.run.");
  }
  return Invalid(context, operand, " names replica ", replica, ", but this computation has ",
                 context.num_replicas, " replicas, numbers 0 to ", context.num_replicas - 1,
                 ". Name only those, or run the computation on more replicas.");
}

// Checks one value, whose role in the operand is `role`, and marks it in `seen`.
absl::Status CheckReplica(const CollectiveContext& context, absl::string_view operand,
                          absl::string_view role, int64_t replica, std::vector<bool>& seen) {
  if (replica < 0 || replica >= context.num_replicas) {
    return UnknownReplica(context, operand, replica);
  }
  if (seen[replica]) {
    return Invalid(context, operand, " has replica ", replica, " more than once ", role,
                   "; expected at most once. Remove the repetition.");
  }
  seen[replica] = true;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ReplicaGroups> ParseGroupAssignment(const CollectiveContext& context,
                                                   absl::Span<const int64_t> shape,
                                                   absl::Span<const int64_t> values) {
  constexpr absl::string_view kOperand = "group_assignment";
  if (shape.size() != 2) {
    return Invalid(context, kOperand, " must have rank 2, [groups, replicas per group]; got shape ",
                   List(shape), ". Pass a list of groups, such as [[0, 1], [2, 3]].");
  }
  std::vector<bool> seen(context.num_replicas, false);
  for (int64_t replica : values) {
    TF_RETURN_IF_ERROR(CheckReplica(context, kOperand, "in its groups", replica, seen));
  }
  std::vector<int64_t> missing;
  for (int64_t replica = 0; replica < context.num_replicas; ++replica) {
    if (!seen[replica]) missing.push_back(replica);
  }
  if (!missing.empty()) {
    return Invalid(context, kOperand, " must hold every replica of the computation; got ",
                   values.size(), " of ", context.num_replicas, ", without ", List(missing),
                   ". Put each replica in exactly one of the groups, which all have one size.");
  }
  const int64_t group_size = shape[1];
  ReplicaGroups groups;
  groups.reserve(shape[0]);
  for (int64_t group = 0; group < shape[0]; ++group) {
    const auto first = values.begin() + group * group_size;
    groups.emplace_back(first, first + group_size);
  }
  return groups;
}

absl::StatusOr<SourceTargetPairs> ParseSourceTargetPairs(const CollectiveContext& context,
                                                         absl::Span<const int64_t> shape,
                                                         absl::Span<const int64_t> values) {
  constexpr absl::string_view kOperand = "source_target_pairs";
  if (shape.size() != 2 || shape[1] != 2) {
    return Invalid(context, kOperand, " must have shape [pairs, 2]; got shape ", List(shape),
                   ". Pass a list of [source, target] pairs, such as [[0, 1], [1, 0]].");
  }
  std::vector<bool> sources(context.num_replicas, false);
  std::vector<bool> targets(context.num_replicas, false);
  SourceTargetPairs pairs;
  pairs.reserve(shape[0]);
  for (int64_t pair = 0; pair < shape[0]; ++pair) {
    const int64_t source = values[2 * pair];
    const int64_t target = values[2 * pair + 1];
    TF_RETURN_IF_ERROR(CheckReplica(context, kOperand, "as a source", source, sources));
    TF_RETURN_IF_ERROR(CheckReplica(context, kOperand, "as a target", target, targets));
    pairs.emplace_back(source, target);
  }
  return pairs;
}

}  // namespace tf_tpu_ext
