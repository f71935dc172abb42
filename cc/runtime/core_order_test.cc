#include "cc/runtime/core_order.h"

#include <vector>

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

class CoreOrderTest : public ::testing::Test {
 protected:
  bool Enter(int64_t id, std::vector<int> cores) {
    return order_.Enter(id, std::move(cores), [this, id] { started_.push_back(id); });
  }

  CoreOrder order_;
  std::vector<int64_t> started_;
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
  order_.Leave(1);
  EXPECT_EQ(started_, (std::vector<int64_t>{2}));
  order_.Leave(2);
  EXPECT_EQ(started_, (std::vector<int64_t>{2, 3}));
}

TEST_F(CoreOrderTest, NobodyPassesOneThatWaits) {
  EXPECT_TRUE(Enter(1, {0}));
  EXPECT_FALSE(Enter(2, {0, 1}));
  EXPECT_FALSE(Enter(3, {1}));
  EXPECT_TRUE(Enter(4, {2}));
  order_.Leave(1);
  EXPECT_EQ(started_, (std::vector<int64_t>{2}));
}

TEST_F(CoreOrderTest, SeveralStartAtOnce) {
  EXPECT_TRUE(Enter(1, {0, 1}));
  EXPECT_FALSE(Enter(2, {0}));
  EXPECT_FALSE(Enter(3, {1}));
  order_.Leave(1);
  EXPECT_EQ(started_, (std::vector<int64_t>{2, 3}));
}

TEST_F(CoreOrderTest, OneThatGivesUpItsPlaceLetsOthersThrough) {
  EXPECT_TRUE(Enter(1, {0}));
  EXPECT_FALSE(Enter(2, {0, 1}));
  EXPECT_FALSE(Enter(3, {1}));
  order_.Leave(2);
  EXPECT_EQ(started_, (std::vector<int64_t>{3}));
  order_.Leave(2);
  EXPECT_TRUE(Enter(4, {5}));
}

}  // namespace
}  // namespace tf_tpu_ext
