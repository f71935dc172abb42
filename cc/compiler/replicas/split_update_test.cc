#include "cc/compiler/replicas/split_update.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "xla/hlo/builder/lib/comparators.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

constexpr int kReplicas = 4;

// A program over vectors of four numbers that returns a tuple of its results. Parameters 0 and 3
// are mirrored.
class Builder {
 public:
  Builder() : builder_("step") {}

  xla::XlaOp Parameter(int number) {
    return xla::Parameter(&builder_, number, xla::ShapeUtil::MakeShape(xla::F32, {4}),
                          "p" + std::to_string(number));
  }
  xla::XlaOp Sum(xla::XlaOp x, const std::vector<std::vector<int64_t>>& groups = {}) {
    std::vector<xla::ReplicaGroup> replica_groups;
    for (const std::vector<int64_t>& ids : groups) {
      xla::ReplicaGroup& group = replica_groups.emplace_back();
      for (int64_t id : ids) group.add_replica_ids(id);
    }
    return xla::CrossReplicaSum(x, replica_groups);
  }
  xla::XlaOp FirstReplicasValue(xla::XlaOp x) {
    std::vector<xla::XlaOp> pieces;
    for (int i = 0; i < kReplicas; ++i) pieces.push_back(xla::Reshape(x, {1, 4}));
    xla::XlaOp all =
        xla::AllToAll(xla::ConcatInDim(&builder_, pieces, 0), 0, 0, kReplicas, {{Everyone()}});
    return xla::Reshape(xla::Slice(all, {0, 0}, {1, 4}, {1, 1}), {4});
  }
  xla::XlaOp Sorted(xla::XlaOp x) {
    return xla::Sort({x}, xla::CreateScalarLtComputation({xla::F32}, &builder_));
  }
  xla::XlaOp ReplicaId() {
    return xla::Broadcast(xla::ConvertElementType(xla::ReplicaId(&builder_), xla::F32), {4});
  }
  std::optional<SplitProgram> Split(const std::vector<xla::XlaOp>& results,
                                    int replicas = kReplicas) {
    xla::XlaOp root = xla::Tuple(&builder_, results);
    auto computation = builder_.Build(root);
    EXPECT_TRUE(computation.ok()) << computation.status();
    return SplitUpdate(computation->proto(), replicas, {0, 3});
  }

 private:
  static xla::ReplicaGroup Everyone() {
    xla::ReplicaGroup group;
    for (int i = 0; i < kReplicas; ++i) group.add_replica_ids(i);
    return group;
  }

  xla::XlaBuilder builder_;
};

int Count(const xla::HloModuleProto& module, const std::string& opcode) {
  int count = 0;
  for (const auto& computation : module.computations()) {
    if (computation.id() != module.entry_computation_id()) continue;
    for (const auto& instruction : computation.instructions()) {
      if (instruction.opcode() == opcode) ++count;
    }
  }
  return count;
}

int Results(const xla::HloModuleProto& module) {
  return module.host_program_shape().result().tuple_shapes_size();
}

TEST(SplitUpdateTest, WhatFollowsTheSumIsTheUpdate) {
  Builder b;
  xla::XlaOp weights = b.Parameter(0), data = b.Parameter(1), unread = b.Parameter(2);
  xla::XlaOp gradient = b.Sum(weights * data);
  auto split = b.Split({weights * data, weights - gradient, unread});
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->replica_results, (std::vector<int>{0, 2}));
  EXPECT_EQ(split->update_results, (std::vector<int>{1}));
  EXPECT_EQ(split->update_parameters, (std::vector<int>{0}));
  ASSERT_EQ(split->combinations.size(), 1);
  EXPECT_EQ(split->combinations[0].kind, Combination::kSum);
  EXPECT_EQ(split->combinations[0].type, xla::F32);
  EXPECT_EQ(Count(split->replica, "all-reduce"), 0);
  EXPECT_EQ(Count(split->replica, "subtract"), 0);
  EXPECT_EQ(Results(split->replica), 3);
  EXPECT_EQ(Count(split->update, "all-reduce"), 0);
  EXPECT_EQ(Count(split->update, "multiply"), 0);
  EXPECT_EQ(Results(split->update), 1);
}

TEST(SplitUpdateTest, TheUpdateAddsUpWhatItReadsOnce) {
  Builder b;
  xla::XlaOp weights = b.Parameter(0), momentum = b.Parameter(3);
  xla::XlaOp read_once = b.Sum(b.Parameter(1)), read_twice = b.Sum(b.Parameter(2));
  auto split = b.Split({weights - read_once, momentum * read_twice + read_twice});
  ASSERT_TRUE(split.has_value());
  ASSERT_EQ(split->combinations.size(), 2);
  EXPECT_TRUE(split->combinations[0].by_update);
  EXPECT_FALSE(split->combinations[1].by_update);
  EXPECT_EQ(split->num_combined_values, kReplicas + 1);
  EXPECT_EQ(Count(split->update, "parameter"), 4 + kReplicas + 1);
  EXPECT_EQ(split->update.host_program_shape().parameters_size(), 4 + kReplicas + 1);
  EXPECT_EQ(Count(split->update, "add"), kReplicas - 1 + 1);
  EXPECT_EQ(Results(split->replica), 2);
}

TEST(SplitUpdateTest, SumsOfManyReplicasAreMadeBefore) {
  Builder b;
  auto split = b.Split({b.Parameter(0) - b.Sum(b.Parameter(1))}, kReplicas + 1);
  ASSERT_TRUE(split.has_value());
  EXPECT_FALSE(split->combinations[0].by_update);
  EXPECT_EQ(split->num_combined_values, 1);
}

TEST(SplitUpdateTest, ASumThatTheReplicaReadsStaysWithIt) {
  Builder b;
  xla::XlaOp weights = b.Parameter(0), data = b.Parameter(1);
  xla::XlaOp mean = b.Sum(data);
  xla::XlaOp gradient = b.Sum((data - mean) * weights);
  // The new mean depends on a value that the replica's part computes.
  auto split = b.Split({weights - gradient, mean * weights});
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->replica_results, (std::vector<int>{1}));
  EXPECT_EQ(split->update_results, (std::vector<int>{0}));
  EXPECT_EQ(Count(split->replica, "all-reduce"), 1);
}

TEST(SplitUpdateTest, NothingIsSplitIfTheReplicaReadsEverySum) {
  Builder b;
  xla::XlaOp data = b.Parameter(1);
  EXPECT_FALSE(b.Split({data * b.Sum(data), data - b.Parameter(0)}).has_value());
}

TEST(SplitUpdateTest, TheUpdateRepeatsLightWorkOnly) {
  Builder b;
  xla::XlaOp weights = b.Parameter(0), momentum = b.Parameter(3);
  xla::XlaOp heavy = b.Sorted(weights);
  xla::XlaOp gradient = b.Sum(weights * b.Parameter(1));
  xla::XlaOp other = b.Sum(weights * b.Parameter(2));
  auto split = b.Split({weights - gradient * heavy, weights * weights - other * momentum});
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->update_results, (std::vector<int>{1}));
  EXPECT_EQ(Count(split->update, "sort"), 0);
}

TEST(SplitUpdateTest, AValueOfOneReplicaKeepsItsUsersWithIt) {
  Builder b;
  xla::XlaOp weights = b.Parameter(0);
  xla::XlaOp gradient = b.Sum(b.Parameter(1));
  auto split = b.Split({weights - gradient * b.ReplicaId(), weights - b.Sum(b.Parameter(2))});
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->update_results, (std::vector<int>{1}));
  EXPECT_EQ(Count(split->replica, "all-reduce"), 1);
}

TEST(SplitUpdateTest, SumsOfSomeReplicasStay) {
  Builder b;
  xla::XlaOp gradient = b.Sum(b.Parameter(0), {{0, 1}, {2, 3}});
  EXPECT_FALSE(b.Split({gradient}).has_value());
}

TEST(SplitUpdateTest, TakesTheFirstReplicasValue) {
  Builder b;
  xla::XlaOp step = b.Parameter(0);
  xla::XlaOp next = step + step;
  auto split = b.Split({b.FirstReplicasValue(next), step - b.Sum(next)});
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->update_results, (std::vector<int>{0, 1}));
  ASSERT_EQ(split->combinations.size(), 2);
  EXPECT_EQ(std::count_if(split->combinations.begin(), split->combinations.end(),
                          [](const Combination& c) { return c.kind == Combination::kFirst; }),
            1);
  EXPECT_EQ(Count(split->replica, "all-to-all"), 0);
}

TEST(SplitUpdateTest, OneReplicaHasNothingToShare) {
  Builder b;
  EXPECT_FALSE(b.Split({b.Sum(b.Parameter(0))}, 1).has_value());
}

}  // namespace
}  // namespace tf_tpu_ext
