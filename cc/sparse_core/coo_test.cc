#include "cc/sparse_core/coo.h"

#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

using Kind = FeatureIds::Kind;

// Ids 5, 5 and 7 of sample 0, and 5 of sample 2.
const std::vector<int32_t>& Ids() {
  static const auto* const ids = new std::vector<int32_t>{5, 5, 7, 5};
  return *ids;
}
constexpr int32_t kIndices[] = {0, 0, 0, 1, 0, 2, 2, 0};
constexpr int32_t kSplits[] = {0, 3, 3, 4};
constexpr float kWeights[] = {1, 2, 3, 4};
constexpr float kOne[] = {2};

void ExpectRefused(const FeatureIds& feature, int64_t samples, const char* reason) {
  const absl::Status status = ToCoo(feature, samples, Combiner::kMean).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), reason)) << status;
}

TEST(ToCooTest, AddsUpEqualIdsThatFollowEachOther) {
  for (const FeatureIds& feature : {FeatureIds{Kind::kSparse, kIndices, 2, Ids(), kWeights},
                                    FeatureIds{Kind::kRagged, kSplits, 0, Ids(), kWeights}}) {
    const auto coo = ToCoo(feature, 3, Combiner::kSum);
    ASSERT_TRUE(coo.ok()) << coo.status();
    EXPECT_EQ(coo->samples, (std::vector<int32_t>{0, 0, 2}));
    EXPECT_EQ(coo->ids, (std::vector<int32_t>{5, 7, 5}));
    EXPECT_EQ(coo->gains, (std::vector<float>{3, 3, 4}));
  }
}

TEST(ToCooTest, DividesByWhatTheCombinerAsksFor) {
  const FeatureIds feature = {Kind::kRagged, kSplits, 0, Ids(), kWeights};
  const auto mean = ToCoo(feature, 3, Combiner::kMean);
  ASSERT_TRUE(mean.ok()) << mean.status();
  EXPECT_FLOAT_EQ(mean->gains[0], 3.0f / 6);
  EXPECT_FLOAT_EQ(mean->gains[2], 1);
  // Sums the squares of the original weights, from before ids were merged.
  const auto sqrtn = ToCoo(feature, 3, Combiner::kSqrtN);
  ASSERT_TRUE(sqrtn.ok()) << sqrtn.status();
  EXPECT_FLOAT_EQ(sqrtn->gains[0], 3 / std::sqrt(1.0f + 4 + 9));
}

TEST(ToCooTest, OneWeightIsForAllIds) {
  const std::vector<int32_t> ids = {1, 2, 3};
  const auto coo = ToCoo({Kind::kDense, {}, 0, ids, kOne}, 3, Combiner::kSum);
  ASSERT_TRUE(coo.ok()) << coo.status();
  EXPECT_EQ(coo->samples, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(coo->gains, (std::vector<float>{2, 2, 2}));
}

TEST(ToCooTest, RefusesWhatIsDamaged) {
  constexpr int32_t kDescending[] = {2, 0, 0, 1, 0, 2, 0, 3};
  constexpr int32_t kNegative[] = {-1, 0, 0, 1, 0, 2, 2, 0};
  constexpr int32_t kWide[] = {0, 3, 9, 4};
  constexpr int32_t kShort[] = {0, 3, 3, 3};
  const std::vector<int32_t> negative = {5, -5, 7, 5};
  ExpectRefused({Kind::kSparse, kDescending, 2, Ids(), kOne}, 3, "ascending");
  ExpectRefused({Kind::kSparse, kNegative, 2, Ids(), kOne}, 3, "sample -1");
  ExpectRefused({Kind::kSparse, kIndices, 2, Ids(), kOne}, 2, "sample 2");
  ExpectRefused({Kind::kSparse, kIndices, 4, Ids(), kOne}, 3, "expected 2");
  ExpectRefused({Kind::kSparse, kSplits, 2, Ids(), kOne}, 3, "2 indices for 4 ids");
  ExpectRefused({Kind::kSparse, {}, 2, Ids(), kOne}, 3, "0 indices for 4 ids");
  ExpectRefused({Kind::kRagged, kSplits, 0, Ids(), kOne}, 2, "4 row splits");
  ExpectRefused({Kind::kRagged, kWide, 0, Ids(), kOne}, 3, "3 and 9");
  ExpectRefused({Kind::kRagged, kShort, 0, Ids(), kOne}, 3, "from 0 to 3");
  ExpectRefused({Kind::kDense, {}, 0, Ids(), kOne}, 3, "dense feature has 4");
  ExpectRefused({Kind::kSparse, kIndices, 2, negative, kOne}, 3, "id -5");
  ExpectRefused({Kind::kSparse, kIndices, 2, Ids(), {}}, 3, "0 weights");
}

TEST(CombinerTest, HasFourNames) {
  EXPECT_EQ(*ParseCombiner("sum"), Combiner::kSum);
  EXPECT_EQ(*ParseCombiner("mean"), Combiner::kMean);
  EXPECT_EQ(*ParseCombiner("sqrtn"), Combiner::kSqrtN);
  EXPECT_EQ(*ParseCombiner("custom_one"), Combiner::kSqrtN);
  EXPECT_TRUE(absl::IsInvalidArgument(ParseCombiner("max").status()));
}

StackPlace Place() {
  StackPlace place;
  place.num_samples = 8;
  place.stacked_samples = 24;
  place.sample_offset = 8;
  place.row_offset = 32;
  place.rotation = 3;
  place.cores_per_chip = 4;
  place.all_cores = 8;
  return place;
}

TEST(SplitByCoreTest, PutsSamplesAndRowsAtTheirPlaces) {
  Coo coo;
  coo.Add(1, 6, 1);   // The first core has samples 0 and 1.
  coo.Add(7, 17, 2);  // The last one has 6 and 7.
  const auto cores = SplitByCore(coo, Place());
  ASSERT_TRUE(cores.ok()) << cores.status();
  ASSERT_EQ(cores->size(), 4);
  // A core has 6 of the stacked samples. Those of this feature start at 2.
  EXPECT_EQ((*cores)[0].samples, (std::vector<int32_t>{2 + 1}));
  EXPECT_EQ((*cores)[3].samples, (std::vector<int32_t>{3 * 6 + 2 + 1}));
  // 6 + 3 wraps to core 1 in the same round of cores. 17 + 3 is on core 4, in the third round.
  EXPECT_EQ((*cores)[0].ids, (std::vector<int32_t>{32 + 1}));
  EXPECT_EQ((*cores)[3].ids, (std::vector<int32_t>{32 + 16 + 4}));
  EXPECT_EQ((*cores)[1].size() + (*cores)[2].size(), 0);
}

TEST(SplitByCoreTest, RefusesWhatCannotBeDivided) {
  StackPlace place = Place();
  place.all_cores = 6;
  EXPECT_TRUE(absl::IsInvalidArgument(CheckStackPlace(place)));
  place = Place();
  place.num_samples = 6;
  EXPECT_TRUE(absl::IsInvalidArgument(CheckStackPlace(place)));
  Coo coo;
  coo.Add(0, std::numeric_limits<int32_t>::max(), 1);
  EXPECT_TRUE(absl::IsInvalidArgument(SplitByCore(coo, Place()).status()));
}

}  // namespace
}  // namespace tf_tpu_ext
