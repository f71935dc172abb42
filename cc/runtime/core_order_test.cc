#include "cc/runtime/core_order.h"

#include <vector>

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

class CoreOrderTest : public ::testing::Test {
 protected:
  bool Enter(int id, const std::vector<int>& cores) {
    return order_.Enter(RunId(id), ToNumbers<Core>(cores), [this, id] { started_.push_back(id); });
  }
  void Leave(int id) { order_.Leave(RunId(id)); }

  CoreOrder order_;
  std::vector<int> started_;
};

TEST_F(CoreOrderTest, FreeCoresAreTakenAtOnce) {
  EXPECT_TRUE(Enter(1, {0, 1}));
  EXPECT_TRUE(Enter(2, {3, 2}));
  EXPECT_TRUE(started_.empty());
}

TEST_F(CoreOrderTest, ProgramsOnACoreRunInTheOrderOfTheirArrival) {
  EXPECT_TRUE(Enter(1, {0, 1}));
  EXPECT_FALSE(Enter(2, {1, 0}));
  EXPECT_FALSE(Enter(3, {1}));
  Leave(1);
  EXPECT_EQ(started_, (std::vector<int>{2}));
  Leave(2);
  EXPECT_EQ(started_, (std::vector<int>{2, 3}));
}

TEST_F(CoreOrderTest, NobodyPassesOneThatWaits) {
  EXPECT_TRUE(Enter(1, {0}));
  EXPECT_FALSE(Enter(2, {0, 1}));
  EXPECT_FALSE(Enter(3, {1}));
  EXPECT_TRUE(Enter(4, {2}));
  Leave(1);
  EXPECT_EQ(started_, (std::vector<int>{2}));
}

TEST_F(CoreOrderTest, SeveralStartAtOnce) {
  EXPECT_TRUE(Enter(1, {0, 1}));
  EXPECT_FALSE(Enter(2, {0}));
  EXPECT_FALSE(Enter(3, {1}));
  Leave(1);
  EXPECT_EQ(started_, (std::vector<int>{2, 3}));
}

TEST_F(CoreOrderTest, OneThatGivesUpItsPlaceLetsOthersThrough) {
  EXPECT_TRUE(Enter(1, {0}));
  EXPECT_FALSE(Enter(2, {0, 1}));
  EXPECT_FALSE(Enter(3, {1}));
  Leave(2);
  EXPECT_EQ(started_, (std::vector<int>{3}));
  Leave(2);
  EXPECT_TRUE(Enter(4, {5}));
}

TEST_F(CoreOrderTest, ProgramsThatEndAsTheyStartTakeNoStack) {
  // More than a thread's stack holds, if each started inside of the one before.
  constexpr int kPrograms = 5000;
  constexpr int kFrameBytes = 1 << 14;
  int ended = 0;
  EXPECT_TRUE(Enter(0, {0}));
  for (int id = 1; id <= kPrograms; ++id) {
    EXPECT_FALSE(order_.Enter(RunId(id), {Core(0)}, [this, id, &ended] {
      volatile char frame[kFrameBytes];
      frame[id % kFrameBytes] = 1;
      ended += frame[id % kFrameBytes];
      Leave(id);
    }));
  }
  Leave(0);
  EXPECT_EQ(ended, kPrograms);
  EXPECT_TRUE(Enter(kPrograms + 1, {0}));
}

}  // namespace
}  // namespace tf_tpu_ext
