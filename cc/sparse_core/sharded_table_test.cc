#include "cc/sparse_core/sharded_table.h"

#include <cstring>
#include <vector>

#include "absl/strings/match.h"
#include "cc/sparse_core/csr.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

// Two chips of two SparseCores, each with two samples and four rows. The table has width one.
SparseCoreShape TwoChips() {
  SparseCoreShape shape;
  shape.op = "the_op";
  shape.table = "words";
  shape.chips = 2;
  shape.cores_per_chip = 2;
  shape.row_pointers = 16;
  shape.ids = 64;
  shape.samples = 4;
  shape.rows = 8;
  shape.width = 1;
  return shape;
}

// An id of one of a SparseCore's samples, with the SparseCore among those of all chips that has its
// row.
struct Id {
  int32_t sample;
  int core_of_row;
  int32_t row;
  float gain;
};

std::vector<int32_t> Pack(const std::vector<std::vector<Id>>& chip) {
  const SparseCoreShape shape = TwoChips();
  std::vector<int32_t> words(shape.words(), 0);
  std::vector<float> gains(shape.ids);
  std::vector<Coo> ids(2);
  std::vector<std::vector<int32_t>> starts(2, {0});
  std::vector<CoreIds> cores;
  for (int core = 0; core < 2; ++core) {
    for (int of_row = 0; of_row < 4; ++of_row) {
      for (const Id& id : chip[core]) {
        if (id.core_of_row == of_row) ids[core].Add(id.sample, id.row, id.gain);
      }
      starts[core].push_back(static_cast<int32_t>(ids[core].size()));
    }
    cores.push_back({{ids[core].samples, ids[core].ids, ids[core].gains}, starts[core]});
  }
  CsrOptions options;
  options.num_cores = 4;
  options.max_ids = shape.ids;
  const absl::Span<int32_t> all = absl::MakeSpan(words);
  EXPECT_TRUE(
      PackCsr(cores, options,
              {all.subspan(0, 16), all.subspan(16, 64), all.subspan(80, 64), absl::MakeSpan(gains)})
          .ok());
  std::memcpy(words.data() + 144, gains.data(), gains.size() * sizeof(float));
  words.back() = 1;
  return words;
}

// Sample 1 of the first chip's first SparseCore and sample 0 of the second chip's second SparseCore
// look up the same row of SparseCore 3. The latter also looks up a row of SparseCore 0.
std::vector<int32_t> Words() {
  std::vector<int32_t> words = Pack({{{1, 3, 2, 10}}, {}});
  const std::vector<int32_t> second = Pack({{}, {{0, 3, 2, 100}, {0, 0, 1, 1000}}});
  words.insert(words.end(), second.begin(), second.end());
  return words;
}

TEST(ShardedTableTest, EachChipAddsItsRows) {
  const SparseCoreShape shape = TwoChips();
  const std::vector<int32_t> words = Words();
  const std::vector<float> table = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> first(8, 0.0f), second(8, 0.0f);
  ASSERT_TRUE(AddRows(shape, ShardIds(shape, words, 0), table.data(), nullptr, first.data()).ok());
  ASSERT_TRUE(AddRows(shape, ShardIds(shape, words, 1), table.data(), nullptr, second.data()).ok());
  EXPECT_EQ(first, (std::vector<float>{0, 0, 0, 0, 0, 0, 2000, 0}));
  // Row 2 of the chip's second SparseCore is row 6 of its part.
  EXPECT_EQ(second, (std::vector<float>{0, 70, 0, 0, 0, 0, 700, 0}));
}

TEST(ShardedTableTest, ARowGetsTheGradientsOfAllChips) {
  const SparseCoreShape shape = TwoChips();
  const std::vector<int32_t> words = Words();
  const std::vector<float> gradients = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto first = SumGradients(shape, ShardIds(shape, words, 0), gradients.data());
  const auto second = SumGradients(shape, ShardIds(shape, words, 1), gradients.data());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->rows, (std::vector<int32_t>{1}));
  EXPECT_EQ(first->sums, (std::vector<float>{7000}));
  EXPECT_EQ(second->rows, (std::vector<int32_t>{6}));
  EXPECT_EQ(second->sums, (std::vector<float>{2 * 10 + 7 * 100}));
}

TEST(ShardedTableTest, QuantizesWhatItReads) {
  const SparseCoreShape shape = TwoChips();
  const std::vector<int32_t> words = Words();
  const std::vector<float> table(8, 0.4f);
  std::vector<float> activations(8, 0.0f);
  const auto half = [](float) { return 0.5f; };
  const QuantizeFn quantize = half;
  ASSERT_TRUE(
      AddRows(shape, ShardIds(shape, words, 0), table.data(), &quantize, activations.data()).ok());
  EXPECT_EQ(activations[6], 500);
}

TEST(ShardedTableTest, AnErrorNamesOpTableAndCore) {
  const SparseCoreShape shape = TwoChips();
  std::vector<int32_t> words = Words();
  words.back() = 9;
  const absl::Status status = SumGradients(shape, ShardIds(shape, words, 0), nullptr).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  for (const char* part : {"the_op", "'words'", "core 1", "minibatches 9"}) {
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
  }
}

}  // namespace
}  // namespace tf_tpu_ext
