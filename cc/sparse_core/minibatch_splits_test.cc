#include "cc/sparse_core/minibatch_splits.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

TEST(SplitsTest, AreATreeOfBits) {
  // The middle, the middle of the first half, and the middle of the first quarter.
  EXPECT_EQ(*ToBuckets(0b1011, 3), (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(*ToBuckets(0, 6), std::vector<int>{});
  EXPECT_EQ(ToBuckets(std::numeric_limits<int64_t>::max(), 6)->size(), 63);
  for (int64_t splits : {int64_t{0}, int64_t{1}, int64_t{0b1011}, int64_t{0x7123456789abcdef}}) {
    EXPECT_EQ(ToSplits(*ToBuckets(splits, 6), 6), splits);
  }
}

TEST(SplitsTest, OfMoreBitsThanThereAreAreRefused) {
  EXPECT_FALSE(ToBuckets(1 << 7, 3).ok());
  EXPECT_FALSE(ToBuckets(-1, 6).ok());
  EXPECT_FALSE(ToBuckets(std::numeric_limits<int64_t>::min(), 6).ok());
}

// One SparseCore, four buckets of four rows.
MinibatchOptions FourBuckets(int64_t ids, int64_t unique_ids) {
  MinibatchOptions options;
  options.num_samples = 8;
  options.num_rows = 16;
  options.levels = 2;
  options.limits = {ids, unique_ids};
  options.table = "words";
  return options;
}

constexpr int32_t kSamples[] = {0, 0, 1, 2, 3, 4};
constexpr int32_t kRows[] = {0, 5, 1, 9, 13, 14};
constexpr float kGains[] = {1, 2, 3, 4, 5, 6};

TEST(PlanMinibatchesTest, OneIsEnoughIfAllFits) {
  const auto plan = PlanMinibatches({kSamples, kRows, kGains}, FourBuckets(6, 6));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->splits, 0);
  EXPECT_EQ(plan->starts, (std::vector<int32_t>{0, 2, 3, 4, 6}));
  EXPECT_EQ(plan->ids.ids, (std::vector<int32_t>{0, 1, 5, 9, 13, 14}));
  EXPECT_EQ(plan->ids.gains, (std::vector<float>{1, 3, 2, 4, 5, 6}));
  EXPECT_EQ(plan->max_ids, 6);
}

TEST(PlanMinibatchesTest, BucketsAreDividedUntilTheyFit) {
  // Two halves of three ids each.
  EXPECT_EQ(PlanMinibatches({kSamples, kRows, kGains}, FourBuckets(3, 3))->splits, 0b001);
  // The buckets have {2, 1, 1, 2} ids. Only the two in the middle fit together.
  const auto plan = PlanMinibatches({kSamples, kRows, kGains}, FourBuckets(2, 2));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(*ToBuckets(plan->splits, 2), (std::vector<int>{1, 3}));
}

TEST(PlanMinibatchesTest, RefusesABucketThatDoesNotFit) {
  const absl::Status status =
      PlanMinibatches({kSamples, kRows, kGains}, FourBuckets(1, 1)).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "bucket of table 'words' has 2 ids")) << status;
}

TEST(PlanMinibatchesTest, RefusesWhatIsDamaged) {
  constexpr int32_t kDescending[] = {6, 0, 1, 2, 3, 4};
  constexpr int32_t kFar[] = {0, 0, 1, 2, 3, 8};
  constexpr int32_t kNoRow[] = {0, 5, 1, 9, 13, 16};
  MinibatchOptions two_cores = FourBuckets(6, 6);
  two_cores.cores_per_chip = 2;
  two_cores.num_cores = 2;
  EXPECT_FALSE(PlanMinibatches({kDescending, kRows, kGains}, two_cores).ok());
  EXPECT_FALSE(PlanMinibatches({kFar, kRows, kGains}, FourBuckets(6, 6)).ok());
  EXPECT_FALSE(PlanMinibatches({kSamples, kNoRow, kGains}, FourBuckets(6, 6)).ok());
  two_cores.num_samples = 7;
  EXPECT_FALSE(PlanMinibatches({kSamples, kRows, kGains}, two_cores).ok());
}

}  // namespace
}  // namespace tf_tpu_ext
