#include "cc/profile/serial_spans.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

using Pairs = std::vector<std::pair<int64_t, int64_t>>;

Pairs Shown(const SerialSpans& serial) {
  Pairs pairs;
  for (const Span& span : serial.spans) pairs.emplace_back(span.begin, span.end);
  return pairs;
}

TEST(SerialSpansTest, KeepsWhatIsNestedOrApart) {
  const SerialSpans serial = MakeSerial({{20, 30}, {0, 10}, {2, 4}, {4, 10}, {10, 12}});
  EXPECT_EQ(Shown(serial), (Pairs{{20, 30}, {0, 10}, {2, 4}, {4, 10}, {10, 12}}));
  EXPECT_EQ(serial.order, (std::vector<int>{1, 2, 3, 4, 0}));
}

TEST(SerialSpansTest, CutsTheOneThatBeganFirst) {
  EXPECT_EQ(Shown(MakeSerial({{0, 10}, {5, 15}})), (Pairs{{0, 5}, {5, 15}}));
}

TEST(SerialSpansTest, CutsAllThatEndInside) {
  const SerialSpans serial = MakeSerial({{0, 100}, {10, 40}, {20, 30}, {25, 120}, {26, 27}});
  EXPECT_EQ(Shown(serial), (Pairs{{0, 25}, {10, 25}, {20, 25}, {25, 120}, {26, 27}}));
}

TEST(SerialSpansTest, CutsWhatHasNoParts) {
  const SerialSpans serial = MakeSerial({{0, 100}, {10, 90, false}, {20, 30}, {40, 50}});
  EXPECT_EQ(Shown(serial), (Pairs{{0, 100}, {10, 20}, {20, 30}, {40, 50}}));
}

TEST(SerialSpansTest, PutsTheLongerOfTwoThatBeginTogetherOutside) {
  const SerialSpans serial = MakeSerial({{0, 5}, {0, 10}});
  EXPECT_EQ(Shown(serial), (Pairs{{0, 5}, {0, 10}}));
  EXPECT_EQ(serial.order, (std::vector<int>{1, 0}));
}

}  // namespace
}  // namespace tf_tpu_ext
