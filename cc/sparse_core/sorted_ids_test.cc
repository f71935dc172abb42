#include "cc/sparse_core/sorted_ids.h"

#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

Coo Make(std::vector<int32_t> samples, std::vector<int32_t> ids, std::vector<float> gains) {
  return {std::move(samples), std::move(ids), std::move(gains)};
}

SortOptions FourCores() {
  SortOptions options;
  options.num_cores = 4;
  options.num_rows = 16;
  options.num_samples = 4;
  options.table = "words";
  return options;
}

TEST(SortByCoreTest, SortsByCoreAndThenById) {
  const auto sorted =
      SortByCore({Make({0, 1, 2, 3, 3}, {9, 2, 1, 9, 4}, {1, 2, 3, 4, 5})}, FourCores());
  ASSERT_TRUE(sorted.ok()) << sorted.status();
  EXPECT_EQ(sorted->starts, (std::vector<int32_t>{0, 1, 4, 5, 5}));
  EXPECT_EQ(sorted->ids.ids, (std::vector<int32_t>{1, 0, 2, 2, 0}));
  EXPECT_EQ(sorted->ids.samples, (std::vector<int32_t>{3, 2, 0, 3, 1}));
  EXPECT_EQ(sorted->ids.gains, (std::vector<float>{5, 3, 1, 4, 2}));
  EXPECT_EQ(sorted->max_ids, 3);
  EXPECT_EQ(sorted->max_unique_ids, 2);
}

TEST(SortByCoreTest, AddsUpWhatASampleHasTwice) {
  const auto sorted = SortByCore({Make({1, 1, 1}, {5, 6, 5}, {1, 2, 4})}, FourCores());
  ASSERT_TRUE(sorted.ok()) << sorted.status();
  EXPECT_EQ(sorted->ids.gains, (std::vector<float>{5, 2}));
  EXPECT_EQ(sorted->max_ids, 1);
}

TEST(SortByCoreTest, NumbersSamplesWithinTheirCore) {
  const auto sorted = SortByCore({Make({9, 11}, {0, 0}, {1, 1})}, FourCores());
  ASSERT_TRUE(sorted.ok()) << sorted.status();
  EXPECT_EQ(sorted->ids.samples, (std::vector<int32_t>{1, 3}));
}

TEST(SortByCoreTest, RefusesMoreThanTheLimits) {
  SortOptions options = FourCores();
  const std::vector<Coo> features = {Make({0, 1, 2}, {4, 4, 8}, {1, 1, 1})};
  options.max_ids = 3;
  options.max_unique_ids = 2;
  EXPECT_TRUE(SortByCore(features, options).ok());
  options.max_ids = 2;
  absl::Status status = SortByCore(features, options).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "3 ids of table 'words'")) << status;
  options.max_ids = 3;
  options.max_unique_ids = 1;
  status = SortByCore(features, options).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "max_unique_ids_per_table")) << status;
}

TEST(SortByCoreTest, RefusesRowsThatTheTableDoesNotHave) {
  for (const Coo& wrong : {Make({0}, {16}, {1}), Make({0}, {-1}, {1}), Make({-1}, {0}, {1})}) {
    EXPECT_TRUE(absl::IsInvalidArgument(SortByCore({wrong}, FourCores()).status()));
  }
}

TEST(MergeFeaturesTest, JoinsThoseOfATableInTheOrderOfTables) {
  const Coo a = Make({0}, {20}, {1}), b = Make({1}, {3}, {2}), c = Make({2}, {21}, {3});
  const auto view = [](const Coo& coo) { return CooView{coo.samples, coo.ids, coo.gains}; };
  const std::vector<Coo> merged = MergeFeatures({view(a), view(b), view(c)}, {16, 0, 16});
  ASSERT_EQ(merged.size(), 2);
  EXPECT_EQ(merged[0].ids, (std::vector<int32_t>{3}));
  EXPECT_EQ(merged[1].ids, (std::vector<int32_t>{20, 21}));
  EXPECT_EQ(merged[1].samples, (std::vector<int32_t>{0, 2}));
}

TEST(CheckLengthsTest, WantsAsManyOfEach) {
  const Coo coo = Make({0, 1}, {1}, {1});
  EXPECT_TRUE(absl::IsInvalidArgument(CheckLengths({coo.samples, coo.ids, coo.gains})));
}

}  // namespace
}  // namespace tf_tpu_ext
