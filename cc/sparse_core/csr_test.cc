#include "cc/sparse_core/csr.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

// Two SparseCores of one chip. The first has three ids, one of whose rows is on the other
// SparseCore.
struct Packed {
  explicit Packed(const CsrOptions& options) {
    pointers.resize(RowPointersOf(options, 2));
    samples.resize(options.max_ids);
    rows.resize(options.max_ids);
    gains.resize(options.max_ids);
    const Coo first = {{0, 1, 1}, {4, 6, 2}, {1, 2, 3}}, second = {{0}, {7}, {4}};
    const std::vector<int32_t> starts = {0, 2, 3}, second_starts = {0, 0, 1};
    const auto view = [](const Coo& coo) { return CooView{coo.samples, coo.ids, coo.gains}; };
    const std::vector<CoreIds> cores = {{view(first), starts}, {view(second), second_starts}};
    sizes = PackCsr(cores, options,
                    {absl::MakeSpan(pointers), absl::MakeSpan(samples), absl::MakeSpan(rows),
                     absl::MakeSpan(gains)});
  }

  CsrView view() const { return {pointers, samples, rows, gains, sizes->minibatches}; }

  std::vector<int32_t> pointers, samples, rows;
  std::vector<float> gains;
  absl::StatusOr<CsrSizes> sizes;
};

CsrOptions TwoCores() {
  CsrOptions options;
  options.num_cores = 2;
  options.max_minibatches = 2;
  options.max_ids = 32;
  options.table = "words";
  return options;
}

CsrShape ShapeOfTwoCores() {
  CsrShape shape;
  shape.cores_per_chip = 2;
  shape.num_cores = 2;
  shape.num_samples = 2;
  shape.num_rows = 8;
  return shape;
}

std::vector<std::string> Read(const Packed& packed, int64_t first, int64_t last) {
  std::vector<std::string> ids;
  EXPECT_TRUE(ForEachId(packed.view(), ShapeOfTwoCores(), first, last, [&](const CsrId& id) {
                ids.push_back(absl::StrCat(id.core_of_sample, "/", id.sample, " ", id.core_of_row,
                                           "/", id.row, " ", id.gain));
              }).ok());
  return ids;
}

TEST(CsrTest, PartsBeginAtMultiplesOfEight) {
  const Packed packed(TwoCores());
  ASSERT_TRUE(packed.sizes.ok()) << packed.sizes.status();
  EXPECT_EQ(packed.sizes->row_pointers, 16);
  EXPECT_EQ(packed.sizes->ids, 24);
  EXPECT_EQ(packed.sizes->minibatches, 1);
  const std::vector<int32_t> used(packed.pointers.begin(), packed.pointers.begin() + 10);
  EXPECT_EQ(used, (std::vector<int32_t>{2, 9, 16, 16, 16, 16, 16, 16, 16, 17}));
  EXPECT_EQ(packed.rows[8], 2);
  EXPECT_EQ(packed.rows[16], 7);
}

TEST(CsrTest, IsReadAsItWasPacked) {
  const Packed packed(TwoCores());
  ASSERT_TRUE(packed.sizes.ok()) << packed.sizes.status();
  EXPECT_EQ(Read(packed, 0, 1), (std::vector<std::string>{"0/0 0/4 1", "0/1 0/6 2"}));
  EXPECT_EQ(Read(packed, 1, 2), (std::vector<std::string>{"0/1 1/2 3", "1/0 1/7 4"}));
}

TEST(CsrTest, IdsForWhichThereIsNoRoomAreAnErrorOrLeftOut) {
  CsrOptions options = TwoCores();
  options.max_ids = 8;
  EXPECT_TRUE(absl::IsInvalidArgument(Packed(options).sizes.status()));
  options.allow_id_dropping = true;
  const Packed packed(options);
  ASSERT_TRUE(packed.sizes.ok()) << packed.sizes.status();
  EXPECT_EQ(packed.sizes->dropped, 2);
  EXPECT_EQ(Read(packed, 0, 2), (std::vector<std::string>{"0/0 0/4 1", "0/1 0/6 2"}));
  options.max_ids = 12;
  EXPECT_TRUE(absl::StrContains(Packed(options).sizes.status().message(), "multiple of 8"));
}

TEST(CsrTest, MoreMinibatchesThanThereIsRoomForAreAnError) {
  CsrOptions options = TwoCores();
  options.buckets = 4;
  options.splits = {1, 2};
  const absl::Status status = Packed(options).sizes.status();
  EXPECT_TRUE(absl::StrContains(status.message(), "3 minibatches")) << status;
}

TEST(CsrTest, CountsOfAnotherSizeAreAnError) {
  CsrOptions options = TwoCores();
  options.num_cores = 4;
  EXPECT_TRUE(absl::StrContains(Packed(options).sizes.status().message(), "id_counts"));
}

TEST(CsrTest, EveryDamageIsFound) {
  const Packed whole(TwoCores());
  const auto damaged = [&](auto change, const char* reason) {
    Packed packed = whole;
    change(packed);
    const absl::Status status =
        ForEachId(packed.view(), ShapeOfTwoCores(), 0, 2, [](const CsrId&) {});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), reason)) << status;
  };
  damaged([](Packed& packed) { packed.pointers[0] = -1; }, "row pointer -1");
  damaged([](Packed& packed) { packed.pointers[0] = 33; }, "row pointer 33");
  damaged([](Packed& packed) { packed.pointers[1] = 7; }, "row pointer 7");
  damaged([](Packed& packed) { packed.samples[0] = 2; }, "sample 2");
  damaged([](Packed& packed) { packed.rows[8] = 8; }, "row 8");
  damaged([](Packed& packed) { packed.rows[8] = -8; }, "row -8");
  damaged([](Packed& packed) { packed.sizes->minibatches = 3; }, "number of minibatches 3");
  damaged([](Packed& packed) { packed.sizes->minibatches = 0; }, "number of minibatches 0");
  CsrShape shape = ShapeOfTwoCores();
  shape.max_ids = 1;
  EXPECT_FALSE(ForEachId(whole.view(), shape, 0, 2, [](const CsrId&) {}).ok());
}

}  // namespace
}  // namespace tf_tpu_ext
