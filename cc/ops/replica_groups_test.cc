#include "cc/ops/replica_groups.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

CollectiveContext Sum(int64_t num_replicas) { return {"CrossReplicaSum", num_replicas}; }

CollectiveContext Permute(int64_t num_replicas) { return {"CollectivePermute", num_replicas}; }

// Expects an InvalidArgument whose message contains each of `parts`.
void ExpectInvalid(const absl::Status& status, const std::vector<std::string>& parts) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  for (const std::string& part : parts) {
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << status << "\nlacks: " << part;
  }
}

TEST(GroupAssignmentTest, KeepsGroupsAndTheirOrder) {
  absl::StatusOr<ReplicaGroups> groups = ParseGroupAssignment(Sum(4), {2, 2}, {3, 1, 0, 2});
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_EQ(*groups, (ReplicaGroups{{3, 1}, {0, 2}}));
}

TEST(GroupAssignmentTest, OneReplicaGroups) {
  absl::StatusOr<ReplicaGroups> groups = ParseGroupAssignment(Sum(3), {3, 1}, {2, 0, 1});
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_EQ(*groups, (ReplicaGroups{{2}, {0}, {1}}));
}

TEST(GroupAssignmentTest, RejectsOtherRanks) {
  ExpectInvalid(ParseGroupAssignment(Sum(2), {2}, {0, 1}).status(),
                {"CrossReplicaSum", "rank 2", "got shape [2]", "[[0, 1], [2, 3]]"});
  ExpectInvalid(ParseGroupAssignment(Sum(1), {}, {0}).status(), {"got shape []"});
  ExpectInvalid(ParseGroupAssignment(Sum(2), {1, 1, 2}, {0, 1}).status(), {"got shape [1, 1, 2]"});
}

TEST(GroupAssignmentTest, RejectsUnknownReplicas) {
  ExpectInvalid(ParseGroupAssignment(Sum(2), {1, 2}, {0, 2}).status(),
                {"names replica 2", "2 replicas, numbers 0 to 1", "more replicas"});
  ExpectInvalid(ParseGroupAssignment(Sum(2), {1, 2}, {0, -1}).status(), {"names replica -1"});
}

TEST(GroupAssignmentTest, OneReplicaIsToldOfReplicate) {
  ExpectInvalid(ParseGroupAssignment(Sum(1), {1, 2}, {0, 1}).status(),
                {"names replica 1", "has one replica", "tpu.replicate"});
}

TEST(GroupAssignmentTest, RejectsRepetition) {
  ExpectInvalid(ParseGroupAssignment(Sum(4), {2, 2}, {0, 1, 1, 2}).status(),
                {"replica 1 more than once in its groups", "at most once"});
}

TEST(GroupAssignmentTest, RejectsMissingReplicas) {
  ExpectInvalid(ParseGroupAssignment(Sum(4), {1, 2}, {0, 2}).status(),
                {"every replica", "got 2 of 4", "without [1, 3]", "exactly one"});
}

TEST(GroupAssignmentTest, RejectsEmptyAssignments) {
  ExpectInvalid(ParseGroupAssignment(Sum(2), {0, 2}, {}).status(), {"got 0 of 2"});
  ExpectInvalid(ParseGroupAssignment(Sum(1), {1, 0}, {}).status(), {"got 0 of 1, without [0]"});
}

TEST(GroupAssignmentTest, MessagesStayShortForManyReplicas) {
  const absl::Status status = ParseGroupAssignment(Sum(1024), {1, 1}, {0}).status();
  ExpectInvalid(status, {"got 1 of 1024", ", ...]"});
  EXPECT_LT(status.message().size(), 400);
}

TEST(SourceTargetPairsTest, KeepsPairsAndTheirOrder) {
  absl::StatusOr<SourceTargetPairs> pairs =
      ParseSourceTargetPairs(Permute(3), {3, 2}, {2, 0, 0, 1, 1, 2});
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_EQ(*pairs, (SourceTargetPairs{{2, 0}, {0, 1}, {1, 2}}));
}

TEST(SourceTargetPairsTest, ReplicasMayBeLeftOut) {
  absl::StatusOr<SourceTargetPairs> pairs = ParseSourceTargetPairs(Permute(4), {1, 2}, {3, 3});
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_EQ(*pairs, (SourceTargetPairs{{3, 3}}));
  pairs = ParseSourceTargetPairs(Permute(4), {0, 2}, {});
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_TRUE(pairs->empty());
}

TEST(SourceTargetPairsTest, RejectsOtherShapes) {
  ExpectInvalid(ParseSourceTargetPairs(Permute(2), {2}, {0, 1}).status(),
                {"CollectivePermute", "[pairs, 2]", "got shape [2]"});
  ExpectInvalid(ParseSourceTargetPairs(Permute(3), {1, 3}, {0, 1, 2}).status(),
                {"got shape [1, 3]"});
}

TEST(SourceTargetPairsTest, RejectsUnknownReplicas) {
  ExpectInvalid(ParseSourceTargetPairs(Permute(2), {1, 2}, {0, 2}).status(), {"names replica 2"});
  ExpectInvalid(ParseSourceTargetPairs(Permute(2), {1, 2}, {-3, 0}).status(), {"names replica -3"});
  ExpectInvalid(ParseSourceTargetPairs(Permute(1), {1, 2}, {0, 1}).status(), {"tpu.replicate"});
}

TEST(SourceTargetPairsTest, RejectsRepetition) {
  ExpectInvalid(ParseSourceTargetPairs(Permute(3), {2, 2}, {0, 1, 0, 2}).status(),
                {"replica 0 more than once as a source"});
  ExpectInvalid(ParseSourceTargetPairs(Permute(3), {2, 2}, {0, 2, 1, 2}).status(),
                {"replica 2 more than once as a target"});
}

}  // namespace
}  // namespace tf_tpu_ext
