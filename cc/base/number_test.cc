#include "cc/base/number.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <type_traits>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

using Row = Number<class RowTag>;
using Column = Number<class ColumnTag>;
using Serial = Number<class SerialTag, int64_t>;

// What the compiler must reject.
static_assert(!std::is_convertible_v<int, Row>);
static_assert(!std::is_convertible_v<Row, int>);
static_assert(!std::is_constructible_v<Row, Column>);
static_assert(!std::is_invocable_v<std::equal_to<>, Row, Column>);
static_assert(!std::is_invocable_v<std::equal_to<>, Row, int>);
static_assert(sizeof(Row) == sizeof(int));

TEST(NumberTest, ComparesHashesAndPrints) {
  EXPECT_EQ(Row(), Row(0));
  EXPECT_NE(Row(1), Row(2));
  EXPECT_LT(Row(1), Row(2));
  EXPECT_GE(Row(2), Row(2));
  EXPECT_EQ(absl::StrCat("row ", Row(3)), "row 3");
  EXPECT_EQ(absl::StrJoin({Row(3), Row(4)}, ","), "3,4");
  const absl::flat_hash_set<Row> rows = {Row(1), Row(2), Row(1)};
  EXPECT_EQ(rows.size(), 2u);
}

TEST(NumberTest, HoldsWhatItsValueHolds) {
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  Serial serial(kLast - 1);
  EXPECT_EQ((++serial).value(), kLast);
}

TEST(NumberTest, ComesFromAndGoesToPlainNumbers) {
  const std::vector<Row> rows = ToNumbers<Row>({4, 0, 4});
  EXPECT_EQ(rows, (std::vector<Row>{Row(4), Row(0), Row(4)}));
  EXPECT_EQ(ToValues(rows), (std::vector<int>{4, 0, 4}));
}

TEST(NumbersBelowTest, CountsUpFromZero) {
  std::vector<Row> seen;
  for (Row row : NumbersBelow<Row>(3)) seen.push_back(row);
  EXPECT_EQ(seen, ToNumbers<Row>({0, 1, 2}));
  for (Row row : NumbersBelow<Row>(0)) ADD_FAILURE() << row;
}

TEST(ByNumberTest, HasAnElementForEachNumber) {
  ByNumber<Row, Column> columns = {Column(5), Column(7)};
  EXPECT_EQ(columns.Add(Column(9)), Row(2));
  EXPECT_EQ(columns.size(), 3);
  EXPECT_EQ(columns[Row(1)], Column(7));
  EXPECT_TRUE(columns.Has(Row(2)));
  EXPECT_FALSE(columns.Has(Row(3)));
  EXPECT_FALSE(columns.Has(Row(-1)));
  std::vector<Column> in_order;
  for (Row row : columns.numbers()) in_order.push_back(columns[row]);
  EXPECT_EQ(in_order, columns.values());
}

TEST(ByNumberTest, ComparesByItsElements) {
  const ByNumber<Row, int> low = {1, 2}, high = {1, 3};
  EXPECT_EQ(low, (ByNumber<Row, int>{1, 2}));
  EXPECT_NE(low, high);
  EXPECT_LT(low, high);
}

TEST(ByNumberTest, BitsCanBeSet) {
  ByNumber<Row, bool> set(2);
  set[Row(1)] = true;
  EXPECT_EQ(set, (ByNumber<Row, bool>{false, true}));
}

}  // namespace
}  // namespace tf_tpu_ext
