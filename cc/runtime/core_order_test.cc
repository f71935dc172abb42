#include "cc/runtime/core_order.h"

#include <map>
#include <vector>

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

using User = CoreOrder::User;

class CoreOrderTest : public ::testing::Test {
 protected:
  // Returns whether the program starts at once.
  bool Enter(int id, const std::vector<int>& cores, User user = User::kProgram) {
    const CoreOrder::Entrance entrance =
        order_.Enter(ToNumbers<Core>(cores), user, [this, id] { started_.push_back(id); });
    places_[id] = entrance.place;
    return entrance.starts;
  }
  void Leave(int id) { order_.Leave(places_.at(id)); }

  CoreOrder order_;
  std::map<int, CoreOrder::Place> places_;
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
  // More than fits on a thread's stack if each started inside the previous one.
  constexpr int kPrograms = 5000;
  constexpr int kFrameBytes = 1 << 14;
  int ended = 0;
  EXPECT_TRUE(Enter(0, {0}));
  for (int id = 1; id <= kPrograms; ++id) {
    const CoreOrder::Entrance entrance =
        order_.Enter({Core(0)}, User::kProgram, [this, id, &ended] {
          volatile char frame[kFrameBytes];
          frame[id % kFrameBytes] = 1;
          ended += frame[id % kFrameBytes];
          Leave(id);
        });
    EXPECT_FALSE(entrance.starts);
    places_[id] = entrance.place;
  }
  Leave(0);
  EXPECT_EQ(ended, kPrograms);
  EXPECT_TRUE(Enter(kPrograms + 1, {0}));
}

TEST_F(CoreOrderTest, OpsOfTheHostWaitForProgramsButNotForEachOther) {
  EXPECT_TRUE(Enter(1, {0}, User::kHostOp));
  EXPECT_TRUE(Enter(2, {0}, User::kHostOp));
  EXPECT_FALSE(Enter(3, {0, 1}));
  EXPECT_FALSE(Enter(4, {0}, User::kHostOp));
  EXPECT_FALSE(Enter(5, {1}, User::kHostOp));
  Leave(2);
  EXPECT_TRUE(started_.empty());
  Leave(1);
  EXPECT_EQ(started_, (std::vector<int>{3}));
  Leave(3);
  EXPECT_EQ(started_, (std::vector<int>{3, 4, 5}));
}

TEST_F(CoreOrderTest, OpsOfTheHostDoNotWaitForAProgramThatMayNeedThem) {
  EXPECT_TRUE(Enter(1, {0}, User::kProgramThatCallsHost));
  EXPECT_FALSE(Enter(2, {0}));
  EXPECT_TRUE(Enter(3, {0}, User::kHostOp));
  Leave(1);
  EXPECT_TRUE(started_.empty());  // the next program sees the update
  Leave(3);
  EXPECT_EQ(started_, (std::vector<int>{2}));
}

TEST_F(CoreOrderTest, OpsOfTheHostThatWaitStartWithAProgramThatMayNeedThem) {
  EXPECT_TRUE(Enter(1, {0}));
  EXPECT_FALSE(Enter(2, {0}, User::kProgramThatCallsHost));
  EXPECT_FALSE(Enter(3, {0}));
  EXPECT_FALSE(Enter(4, {0}, User::kHostOp));
  Leave(1);
  EXPECT_EQ(started_, (std::vector<int>{2, 4}));
}

}  // namespace
}  // namespace tf_tpu_ext
